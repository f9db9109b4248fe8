import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { createServer } from 'node:http'
import { describe, expect, test, vi } from 'vitest'
import { WebSocketServer } from 'ws'
import { api } from '../../src/api.ts'
import { agentDialer } from '../../src/device-agent/connection.ts'
import { identityHolder } from '../../src/device-agent/identity-holder.ts'
import { keepListening } from '../../src/device-agent/live/connection.ts'
import { identityStore } from '../../src/device-agent/state.ts'
import { listening } from '../cli/network.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { livingAgents } from './live.ts'
import { agreeable, authToken, beat, identityAt, standIn } from './stand-in.ts'

const { live, stateDir } = livingAgents()
const day = 86_400_000

inTurn((open) => {
  test('an agent rotates its tokens at the request of the service, and uses the new ones', async () => {
    let now = new Date()
    const service = await startService(open, { clock: () => now.toISOString() })
    const { tokens, orgs } = await buildWorld(service)
    const client = service.client(tokens.bakery)
    const { key } = await client.call(api.enrollmentKeys.create, {
      body: { orgId: orgs.bakery.id, name: 'Agents' },
    })
    const once = { key: async () => key, pace: { once: true } }
    expect((await live(service.url, once)).names).not.toContain('token')
    const before = identityStore(stateDir()).load()!
    now = new Date(now.getTime() + 31 * day)
    expect((await live(service.url, once)).names).toContain('token')
    const after = identityStore(stateDir()).load()!
    expect([after.agentId, after.staged]).toEqual([before.agentId, undefined])
    expect(after.authToken).not.toBe(before.authToken)
    expect(after.watchdogAuthToken).not.toBe(before.watchdogAuthToken)
    now = new Date(now.getTime() + 10 * 60_000)
    const { failure, names } = await live(service.url, once)
    expect(failure).toBeUndefined()
    expect(names).not.toContain('token')
    // The key of the machine would get it a new token.
    identityStore(stateDir()).save({ ...before, proof: undefined })
    expect((await live(service.url, once)).failure).toMatchObject({ code: 'invalid_agent_credentials' })
  })
})

test.each(['/rotate-token', '/confirm'])(
  'tokens that cannot be stored after %s are reported, and not lost',
  async (step) => {
    const identity = identityStore(stateDir())
    const replaced = { authToken: 'svc_new', watchdogAuthToken: 'svc_new_too' }
    const full = (): string => `${identity.file}.new`
    await using service = await standIn((request) => {
      if (request.path.endsWith(step)) mkdirSync(full())
      if (request.path.endsWith('/rotate-token')) return { status: 200, body: replaced }
      if (!request.path.endsWith('/heartbeat')) return agreeable(request)
      return { status: 200, body: { ...(beat as { body: object }).body, rotateToken: true } }
    })
    identity.save({ ...identityAt(service.url), proof: { privateKey: 'a', service: 'b' } })
    const { events } = await live(service.url, { pace: { once: true } })
    expect(events).toContainEqual(
      expect.objectContaining({ event: 'failed', step: 'rotation', code: 'not_stored' }),
    )
    expect(events.map(({ event }) => event)).not.toContain('token')
    expect(service.count('/confirm')).toBe(step === '/confirm' ? 1 : 0)
    expect(identity.load()).toMatchObject({
      authToken,
      ...(step === '/confirm' && { staged: replaced }),
    })
  },
)

describe('the connection of an agent', () => {
  test('reconnects with a new token at once, without a failure', async () => {
    const server = createServer()
    const seen: string[] = []
    new WebSocketServer({ server }).on('connection', (socket, { headers }) => {
      seen.push(String(headers.authorization))
      socket.send('{"type":"connected"}')
    })
    const url = `http://127.0.0.1:${await listening(server)}`
    const me = identityHolder(identityStore(stateDir()), identityAt(url))
    const stop = new AbortController()
    const events: string[] = []
    const agent = {
      clock: { now: () => performance.now(), sleep: () => Promise.reject(new Error('it does not wait')) },
      dial: agentDialer({ url, version: '1.2.3' }, async () => ({})),
      random: () => 0,
      report: ({ event }: { event: string }) => void events.push(event),
      signal: stop.signal,
    }
    const able = { logs: {} as never, perform: () => Promise.reject(new Error('nothing is asked')) }
    const listeningOn = keepListening(agent as never, me, able)
    await vi.waitFor(() => expect(events).toEqual(['listening']), { timeout: 30_000 })
    me.save({ authToken: 'another' })
    await vi.waitFor(() => expect(events).toEqual(['listening', 'listening']), { timeout: 30_000 })
    expect(seen).toEqual([`Bearer ${authToken}`, 'Bearer another'])
    stop.abort()
    await listeningOn
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
})
