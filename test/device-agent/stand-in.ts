import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Identity } from '../../src/device-agent/state.ts'

export type Received = {
  method: string
  path: string
  headers: IncomingHttpHeaders
  body: Record<string, unknown>
}
/** `hang` never answers, `cut` closes the connection; bytes are sent unchanged, and may end too early. */
export type Answer =
  | { status: number; body: unknown; headers?: Record<string, string> }
  | { status: number; bytes: Buffer; headers?: Record<string, string>; cutAfter?: number }
  | 'hang'
  | 'cut'

export const agentId = 'a'.repeat(64)
export const authToken = `svc_${'b'.repeat(64)}`
export const watchdogAuthToken = `svc_${'c'.repeat(64)}`
export const deviceId = '0198c0de-0000-7000-8000-000000000001'
const orgId = '0198c0de-0000-7000-8000-000000000002'

/** The stored identity of an agent that enrolled there. */
export const identityAt = (url: string): Identity => ({
  url,
  agentId,
  deviceId,
  orgId,
  siteId: null,
  authToken,
  heartbeatIntervalSeconds: 60,
})

export const enrolled: Answer = {
  status: 201,
  body: {
    agentId,
    deviceId,
    authToken,
    orgId,
    siteId: null,
    config: { heartbeatIntervalSeconds: 60, metricsCollectionIntervalSeconds: 30 },
  },
}
export const beat: Answer = {
  status: 200,
  body: { commands: [], configUpdate: null, upgradeTo: null, rotateToken: false, manifestTrustKeys: [] },
}
export const stored: Answer = { status: 200, body: { success: true } }
export const refusal = (status: number, code: string, headers: Record<string, string> = {}): Answer => ({
  status,
  body: { error: `refused: ${code}`, code, requestId: 'r-1' },
  headers,
})

/** The replies of a service that accepts everything. */
export function agreeable({ path }: Pick<Received, 'path'>): Answer {
  if (path.endsWith('/enroll')) return enrolled
  if (path.endsWith('/eventlogs')) return { status: 200, body: { success: true, count: 1 } }
  if (path.endsWith('/logs')) return { status: 201, body: { received: 1 } }
  return path.endsWith('/inventory') ? stored : beat
}

/** A service on the loopback that records its requests. */
export async function standIn(answer: (request: Received, before: Received[]) => Answer = agreeable) {
  const received: Received[] = []
  const server = createServer(async (request, reply) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const { method = '', url = '', headers } = request
    const one = { method, path: url, headers, body: JSON.parse(Buffer.concat(chunks).toString() || '{}') }
    const said = answer(one, [...received])
    received.push(one)
    if (said === 'hang') return
    if (said === 'cut') return void request.socket.destroy()
    if ('bytes' in said) {
      const { bytes, cutAfter = bytes.length } = said
      reply.writeHead(said.status, { 'content-length': bytes.length, ...said.headers })
      reply.write(bytes.subarray(0, cutAfter), () => cutAfter < bytes.length && request.socket.destroy())
      if (cutAfter >= bytes.length) reply.end()
      return
    }
    reply.writeHead(said.status, { 'content-type': 'application/json', ...said.headers })
    reply.end(JSON.stringify(said.body))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    count: (end: string) => received.filter(({ path }) => path.endsWith(end)).length,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
