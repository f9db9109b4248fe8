import { randomUUID } from 'node:crypto'
import type { SocketOptions } from '../cli/transport.ts'
import { type Client, createClient, type Transport } from '../core/client.ts'
import { largestFrame } from '../live/wire/contract.ts'
import type { Dial } from './agent.ts'

export type Connection = { url: string; version: string; transport: Transport; signal: AbortSignal }

/** A client that tries once: when to try again is the agent's own business. */
export const agentClient = (
  { version, transport, ...options }: Connection,
  authToken?: () => string,
): Client =>
  createClient({
    ...options,
    retries: 0,
    transport: reuseIdempotencyKey(transport),
    headers: { 'user-agent': `svc-agent/${version}` },
    ...(authToken && { credentials: { headers: async () => ({ authorization: `Bearer ${authToken()}` }) } }),
  })

/** A WebSocket to the service: the same way, the same certificates. Its package is loaded when it is needed. */
export const agentDialer =
  (
    { url, version }: Pick<Connection, 'url' | 'version'>,
    wayTo: (url: URL) => Promise<SocketOptions>,
  ): Dial =>
  async (agentId, authToken) => {
    const { WebSocket } = await import('ws')
    const way = await wayTo(new URL(url))
    const place = `${url.replace(/\/+$/, '').replace(/^http/, 'ws')}/api/v1/agent-ws/${agentId}/ws`
    return new WebSocket(place, {
      headers: { authorization: `Bearer ${authToken}`, 'user-agent': `svc-agent/${version}` },
      perMessageDeflate: false,
      handshakeTimeout: 30_000,
      maxPayload: largestFrame,
      ...way,
    })
  }

/**
 * One idempotency key for as long as the same thing is said in the same place: after an answer that was lost it is the same
 * request, whatever was said elsewhere meanwhile.
 */
function reuseIdempotencyKey(transport: Transport): Transport {
  const last = new Map<string, { said: string | undefined; key: string }>()
  return ({ headers, ...request }) => {
    if (!('idempotency-key' in headers)) return transport({ ...request, headers })
    const { url, body: said } = request
    const before = last.get(url)
    const key = before && before.said === said ? before.key : randomUUID()
    last.set(url, { said, key })
    return transport({ ...request, headers: { ...headers, 'idempotency-key': key } })
  }
}
