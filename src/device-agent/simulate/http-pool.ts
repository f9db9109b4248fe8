import type { IncomingMessage } from 'node:http'
import { pooledAgent } from '../../cli/transport.ts'
import { reasonOf } from '../../core/client.ts'
import { parseJson } from '../../core/json.ts'

export type Reply = {
  /** 0: there was no reply. */
  status: number
  /** The parsed body; undefined when it is not JSON. */
  body: unknown
  /** The error code of the service, or why there was no reply. */
  reason: string
  /** The requested pause; 0 if none. */
  retryAfterMs: number
}

export type RequestOptions = { token?: string; body?: unknown; idempotencyKey?: string }
type Send = (method: string, path: string, said: RequestOptions) => Promise<Reply>

/** Milliseconds without receiving a byte. */
const idleTimeoutMs = 30_000
const basePath = '/api/v1'

export type HttpPool = { send: Send; close(): void }

/**
 * Requests of many agents over few connections. Never rejects: a missing reply is a result as well. Lighter than the
 * contract's client, which is not designed for hundreds of requests per second.
 */
export async function openHttpPool(options: {
  url: string
  version: string
  caFile: string | undefined
  connections: number
}): Promise<HttpPool> {
  const { caFile, connections, version } = options
  const url = new URL(options.url)
  const { agent, request } = await pooledAgent(url, { caFile, maxSockets: connections })
  const place = { protocol: url.protocol, hostname: url.hostname.replace(/^\[|\]$/g, ''), port: url.port }
  const prefix = url.pathname.replace(/\/+$/, '') + basePath

  const send: Send = (method, path, { token, body, idempotencyKey }) =>
    new Promise((resolve) => {
      const text = body === undefined ? undefined : JSON.stringify(body)
      const headers: Record<string, string | number> = { 'user-agent': `svc-agent/${version}` }
      if (token !== undefined) headers.authorization = `Bearer ${token}`
      if (idempotencyKey !== undefined) headers['idempotency-key'] = idempotencyKey
      if (text !== undefined) {
        headers['content-type'] = 'application/json'
        headers['content-length'] = Buffer.byteLength(text)
      }
      const fail = (error: unknown): void =>
        resolve({ status: 0, body: undefined, reason: reasonOf(error), retryAfterMs: 0 })
      const call = request({ ...place, agent, method, path: prefix + path, headers })
      call.on('error', fail)
      call.setTimeout(idleTimeoutMs, () =>
        call.destroy(new Error(`no answer within ${idleTimeoutMs / 1000} s`)),
      )
      call.on('response', (reply: IncomingMessage) => {
        let said = ''
        reply.setEncoding('utf8')
        reply.on('data', (chunk: string) => {
          said += chunk
        })
        reply.on('error', fail)
        reply.on('end', () => resolve(replyOf(reply, said)))
      })
      call.end(text)
    })

  return { send, close: () => agent.destroy() }
}

function replyOf({ statusCode = 0, headers }: IncomingMessage, text: string): Reply {
  const body = parseJson(text)
  const { code } = (body ?? {}) as { code?: unknown }
  const wait = Number(headers['retry-after'] ?? 0)
  return {
    status: statusCode,
    body,
    reason: `${statusCode} ${typeof code === 'string' ? code : ''}`.trim(),
    retryAfterMs: Number.isFinite(wait) ? wait * 1000 : 0,
  }
}
