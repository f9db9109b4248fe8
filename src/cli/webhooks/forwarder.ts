import { NetworkError } from '../../core/client.ts'
import { usageError } from '../exit-codes.ts'
import { isLoopbackHost, nodeTransport } from '../transport.ts'
import type { ForwardResult, Headers } from './delivery.ts'

/** The reply to the sender. */
export type ReceiverReply = { status: number; headers: Record<string, string>; body: Buffer | string }

/** Milliseconds: less than the time limit of the sender. */
const defaultTimeoutMs = 25_000
const maxReplyBytes = 64 << 10

/** Headers of one connection (RFC 9110 7.6.1), and headers that the transport sets itself. */
const connectionHeaders =
  /^(connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|expect|host|content-length)$/

/** Reply headers that matter to the sender. */
const kept = ['content-type', 'content-encoding', 'retry-after', 'location']

export type Forward = (
  headers: Headers,
  body: Buffer,
) => Promise<{ forwarded: ForwardResult; answer: ReceiverReply }>

/** Forwards deliveries unchanged, and returns the reply of the target. */
export function createForwarder(target: URL, patience = defaultTimeoutMs): Forward {
  const transport = nodeTransport({ caFile: process.env.SVC_CA_FILE || undefined })
  return async (given, body) => {
    const named = (given.connection ?? '').toLowerCase().split(/[\s,]+/)
    const stays = ([name]: [string, string]) => !connectionHeaders.test(name) && !named.includes(name)
    const headers = Object.fromEntries(Object.entries(given).filter(stays))
    const signal = AbortSignal.timeout(patience)
    const started = performance.now()
    try {
      const reply = await transport({ method: 'POST', url: target.href, headers, body, signal })
      if (reply.status < 200) return failed(502, `${target.origin} answers with an invalid status`)
      const answer = await readUpTo(reply.body)
      const milliseconds = Math.round(performance.now() - started)
      const passed = kept.flatMap((name) => (reply.headers[name] ? [[name, reply.headers[name]]] : []))
      return {
        forwarded: { status: reply.status, milliseconds },
        answer: { status: reply.status, headers: Object.fromEntries(passed), body: answer },
      }
    } catch (error) {
      return signal.aborted
        ? failed(504, `${target.origin} did not answer within ${patience / 1000} s`)
        : failed(502, error instanceof NetworkError ? error.message : `${target.origin} broke off its answer`)
    }
  }
}

const failed = (status: number, error: string) => ({
  forwarded: { error },
  answer: errorReply(status, error),
})

export const errorReply = (
  status: number,
  error: string,
  headers: Record<string, string> = {},
): ReceiverReply => ({
  status,
  headers: { 'content-type': 'application/json', ...headers },
  body: `${JSON.stringify({ error })}\n`,
})

async function readUpTo(body: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    length += chunk.length
    if (length >= maxReplyBytes) break
  }
  return Buffer.concat(chunks).subarray(0, maxReplyBytes)
}

/** The target of `--forward-to`, which must not be this command itself, at `port`. */
export function parseTarget(text: string, port: number | undefined): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw usageError(`--forward-to is not a URL: ${text}`, 'such as http://127.0.0.1:8080/hooks')
  }
  if (url.username || url.password) {
    throw usageError('--forward-to must not carry a password', 'let the target accept deliveries without one')
  }
  const itself = isLoopbackHost(url.hostname) && url.port === String(port)
  if (itself)
    throw usageError('--forward-to points to this command', 'give another --port, or the port of the target')
  return url
}
