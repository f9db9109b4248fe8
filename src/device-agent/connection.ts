import { randomUUID } from 'node:crypto'
import type { SocketOptions } from '../cli/transport.ts'
import { type Client, createClient, type Transport } from '../core/client.ts'
import { largestFrame } from '../live/wire/contract.ts'
import type { Dial } from './agent.ts'

export type Connection = { url: string; version: string; transport: Transport; signal: AbortSignal }

/** A client without retries: the agent schedules its own. */
export const agentClient = (
  { version, transport, ...options }: Connection,
  authToken?: () => string,
  headers?: Record<string, string>,
): Client =>
  createClient({
    ...options,
    retries: 0,
    transport: reuseIdempotencyKey(transport),
    headers: { 'user-agent': `svc-agent/${version}`, ...headers },
    ...(authToken && { credentials: { headers: async () => ({ authorization: `Bearer ${authToken()}` }) } }),
  })

/** A WebSocket to the service, with the same proxy and certificates. The ws package is loaded on first use. */
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
 * Reuses the idempotency key while the body for an address stays the same: after a lost reply the same request is
 * sent again, regardless of other requests in between.
 */
function reuseIdempotencyKey(transport: Transport): Transport {
  const last = new Map<string, { body: string | undefined; key: string }>()
  return ({ headers, ...request }) => {
    if (!('idempotency-key' in headers)) return transport({ ...request, headers })
    const { url, body } = request
    const before = last.get(url)
    const key = before && before.body === body ? before.key : randomUUID()
    last.set(url, { body, key })
    return transport({ ...request, headers: { ...headers, 'idempotency-key': key } })
  }
}
