import { randomUUID } from 'node:crypto'
import { type Client, connect, type Transport } from '../core/client.ts'

export type Connection = { url: string; version: string; transport: Transport; signal: AbortSignal }

/** A client that tries once: when to try again is the agent's own business. */
export const clientAs = ({ version, transport, ...options }: Connection, authToken?: string): Client =>
  connect({
    ...options,
    retries: 0,
    transport: sameKeyEveryTime(transport),
    headers: { 'user-agent': `svc-agent/${version}` },
    ...(authToken && { credentials: { headers: async () => ({ authorization: `Bearer ${authToken}` }) } }),
  })

/** One idempotency key for all creates of a client, since an agent creates one thing only, again and again. */
function sameKeyEveryTime(transport: Transport): Transport {
  const key = randomUUID()
  return ({ headers, ...request }) =>
    transport({
      ...request,
      headers: { ...headers, ...('idempotency-key' in headers && { 'idempotency-key': key }) },
    })
}
