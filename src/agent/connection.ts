import { randomUUID } from 'node:crypto'
import { type Client, connect, type Transport } from '../core/client.ts'

export type Connection = { url: string; version: string; transport: Transport; signal: AbortSignal }

/** A client that tries once: when to try again is the agent's own business. */
export const clientAs = ({ version, transport, ...options }: Connection, authToken?: string): Client =>
  connect({
    ...options,
    retries: 0,
    transport: sameKeyAgain(transport),
    headers: { 'user-agent': `svc-agent/${version}` },
    ...(authToken && { credentials: { headers: async () => ({ authorization: `Bearer ${authToken}` }) } }),
  })

/** One idempotency key for as long as the same thing is said: after an answer that was lost it is the same request. */
function sameKeyAgain(transport: Transport): Transport {
  let said: string | undefined
  let key = randomUUID()
  return ({ headers, ...request }) => {
    if (!('idempotency-key' in headers)) return transport({ ...request, headers })
    if (request.body !== said) key = randomUUID()
    said = request.body
    return transport({ ...request, headers: { ...headers, 'idempotency-key': key } })
  }
}
