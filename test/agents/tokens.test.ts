import fc from 'fast-check'
import type { CompiledQuery } from 'kysely'
import { describe, expect, it } from 'vitest'
import { agentAuthenticator } from '../../src/agents/principal.ts'
import { checkIsCurrent, checkMayConfirm } from '../../src/agents/tokens/rules.ts'
import { sweepRotations } from '../../src/agents/tokens/store.ts'
import { api } from '../../src/api.ts'
import type { Problem } from '../../src/core/errors.ts'
import { addSeconds } from '../../src/core/time.ts'
import type { Db } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { depth, seed } from '../depth.ts'
import { begin } from '../devices/device-fixture.ts'
import { testClock } from '../harness.ts'
import { RawAgent, refusedUpgrade } from '../live/raw-agent.ts'
import { RotatingAgent } from './rotating-agent.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

/** The same database, except that `between` runs once its first query was answered. */
function interrupted(db: Db, between: () => Promise<unknown>): Db {
  let asked = 0
  const bound = <T extends object>(target: T, key: PropertyKey) => {
    const value = Reflect.get(target, key)
    return typeof value === 'function' ? value.bind(target) : value
  }
  const executor = new Proxy(db.getExecutor(), {
    get: (target, key) =>
      key !== 'executeQuery'
        ? bound(target, key)
        : async (query: CompiledQuery) => {
            const result = await target.executeQuery(query)
            asked += 1
            if (asked === 1) await between()
            return result
          },
  })
  return new Proxy(db, {
    get: (target, key) => (key === 'getExecutor' ? () => executor : bound(target, key)),
  })
}

describe('a step of a rotation', () => {
  const now = '2026-03-01T12:00:00.000Z'
  const [past, future] = [addSeconds(now, -1), addSeconds(now, 1)]
  const none = {
    token_hash: 'a',
    watchdog_token_hash: null,
    token_issued_at: null,
    pending_token_hash: null,
    pending_watchdog_hash: null,
    pending_until: null,
    previous_token_hash: null,
    previous_watchdog_hash: null,
    previous_until: null,
  }
  const rotated = { ...none, token_issued_at: past }
  const waiting = { ...rotated, pending_token_hash: 'b', pending_until: future }
  const outcome = (step: () => unknown) => {
    try {
      return step()
    } catch (error) {
      return (error as Problem).code
    }
  }

  it.each([
    ['current', 'current', undefined],
    ['current', 'previous', 'rotation_stale_current'],
    ['pending', 'pending', 'pending_rotation_unconfirmed'],
    ['pending', 'lapsed', 'pending_rotation_expired'],
    ['previous', 'previous', 'rotation_stale_current'],
    ['current', undefined, 'rotation_unresolvable'],
  ] as const)('to rotate with a token that was %s and is now %s', (before, after, expected) => {
    expect(outcome(() => checkIsCurrent({ before, now: after }))).toBe(expected)
  })

  it.each([
    ['pending', 'pending', waiting, 'confirm'],
    ['pending', 'current', rotated, 'done'],
    ['current', 'current', rotated, 'done'],
    ['current', 'current', { ...waiting, pending_until: past }, 'done'],
    ['current', 'current', waiting, 'pending_token_required'],
    ['current', 'current', none, 'pending_token_required'],
    ['lapsed', 'lapsed', waiting, 'pending_rotation_expired'],
    ['pending', 'lapsed', waiting, 'pending_rotation_expired'],
    ['previous', 'previous', rotated, 'rotation_stale_current'],
    ['pending', undefined, waiting, 'rotation_conflict'],
    ['current', undefined, none, 'rotation_unresolvable'],
  ] as const)('to confirm with a token that was %s and is now %s', (before, after, tokens, expected) => {
    expect(outcome(() => checkMayConfirm({ before, now: after }, tokens, now))).toBe(expected)
  })
})

inTurn((open) => {
  const start = async (env: Record<string, string> = {}) => {
    const clock = testClock(new Date().toISOString())
    const stage = await begin(open, { clock, env: { ENROLLMENT_KEY_DEFAULT_TTL_MINUTES: '525600', ...env } })
    const { service, enroll } = stage
    const { agentId, deviceId, authToken, watchdogAuthToken } = await enroll('till-1')
    const params = { id: agentId }
    const as = (token: string) => {
      const client = service.client(token)
      return {
        beat: (more = {}) =>
          client.call(api.agents.heartbeat, {
            params,
            body: { status: 'ok', agentVersion: '0.1.0', ...more },
          }),
        rotate: () => client.call(api.agentTokens.rotate, { params }),
        confirm: () => client.call(api.agentTokens.confirm, { params }),
      }
    }
    return { ...stage, clock, agentId, deviceId, authToken, watchdogAuthToken, as }
  }

  describe('a token', () => {
    it('is replaced in two steps; the old one is valid for 5 minutes, with a header', async () => {
      const { as, authToken: old, watchdogAuthToken: oldWatchdog, clock, service, agentId } = await start()
      const fresh = await as(old).rotate()
      expect(fresh).toEqual({
        authToken: expect.stringMatching(/^svc_[0-9a-f]{64}$/),
        watchdogAuthToken: expect.stringMatching(/^svc_[0-9a-f]{64}$/),
        confirmationRequired: true,
        pendingExpiresAt: addSeconds(clock(), 3600),
      })
      expect((await as(old).beat()).confirmTokenRotation).toBeUndefined()
      expect(await as(fresh.authToken).beat()).toMatchObject({
        confirmTokenRotation: true,
        rotateToken: false,
      })
      expect(await as(fresh.authToken).confirm()).toEqual({ success: true })
      expect((await as(fresh.authToken).beat()).confirmTokenRotation).toBeUndefined()
      const headersOf = async (token: string) => {
        const body = JSON.stringify({ status: 'ok', agentVersion: '0.1.0' })
        return (await service.client(token).raw('POST', `/agents/${agentId}/heartbeat`, { body })).headers
      }
      const header = 'x-token-rotation-required'
      expect((await headersOf(old))[header]).toBe('true')
      expect((await headersOf(oldWatchdog))[header]).toBe('true')
      expect((await headersOf(fresh.authToken))[header]).toBeUndefined()
      expect((await headersOf(fresh.watchdogAuthToken))[header]).toBeUndefined()
      clock.forward(299)
      await as(old).beat()
      clock.forward(2)
      for (const token of [old, oldWatchdog]) {
        await expect(as(token).beat()).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
      }
      await as(fresh.authToken).beat()
      await as(fresh.watchdogAuthToken).beat()
    })

    it('that was issued but never arrived is replaced by another rotation', async () => {
      const { as, authToken } = await start()
      const lost = await as(authToken).rotate()
      const fresh = await as(authToken).rotate()
      await expect(as(lost.authToken).confirm()).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
      await as(fresh.authToken).confirm()
      await as(fresh.authToken).beat()
    })

    it('may be confirmed again when the reply was lost, even much later', async () => {
      const { as, authToken, clock } = await start()
      const { authToken: fresh } = await as(authToken).rotate()
      await as(fresh).confirm()
      expect(await as(fresh).confirm()).toEqual({ success: true })
      clock.forward(86_400)
      expect(await as(fresh).confirm()).toEqual({ success: true })
    })

    it('is refused with the applicable error wherever a step uses the wrong one', async () => {
      const { as, authToken: old, watchdogAuthToken, clock } = await start()
      await expect(as(old).confirm()).rejects.toEqual(failing(409, 'pending_token_required'))
      const first = await as(old).rotate()
      await expect(as(old).confirm()).rejects.toEqual(failing(409, 'pending_token_required'))
      await expect(as(first.authToken).rotate()).rejects.toEqual(failing(409, 'pending_rotation_unconfirmed'))
      for (const token of [watchdogAuthToken, first.watchdogAuthToken]) {
        await expect(as(token).rotate()).rejects.toEqual(failing(403, 'agent_role_required'))
        await expect(as(token).confirm()).rejects.toEqual(failing(403, 'agent_role_required'))
      }
      clock.forward(3600)
      await expect(as(first.authToken).confirm()).rejects.toEqual(failing(409, 'pending_rotation_expired'))
      await expect(as(first.authToken).beat()).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
      await as(old).beat()
      const second = await as(old).rotate()
      await as(second.authToken).confirm()
      await expect(as(old).rotate()).rejects.toEqual(failing(409, 'rotation_stale_current'))
      await expect(as(old).confirm()).rejects.toEqual(failing(409, 'rotation_stale_current'))
      const third = await as(second.authToken).rotate()
      await expect(as(second.authToken).confirm()).rejects.toEqual(failing(409, 'pending_token_required'))
      await as(third.authToken).confirm()
    })

    it('is to be rotated at its maximum age, but not while a rotation is in progress', async () => {
      const { as, authToken, watchdogAuthToken, clock } = await start({
        AGENT_TOKEN_ROTATION_MAX_AGE_DAYS: '7',
      })
      clock.forward(7 * 86_400)
      expect((await as(authToken).beat()).rotateToken).toBe(false)
      clock.forward(1)
      expect((await as(authToken).beat()).rotateToken).toBe(true)
      expect((await as(watchdogAuthToken).beat()).rotateToken).toBe(false)
      const fresh = await as(authToken).rotate()
      expect((await as(fresh.authToken).beat()).rotateToken).toBe(false)
      await as(fresh.authToken).confirm()
      expect((await as(fresh.authToken).beat()).rotateToken).toBe(false)
      clock.forward(7 * 86_400 + 1)
      expect((await as(fresh.authToken).beat()).rotateToken).toBe(true)
    })

    it('is confirmed once, however many requests confirm it at the same moment', async () => {
      const { as, authToken, service, deviceId } = await start()
      const { authToken: fresh } = await as(authToken).rotate()
      const all = await Promise.all([1, 2, 3, 4].map(() => as(fresh).confirm()))
      expect(all).toEqual(Array(4).fill({ success: true }))
      await as(authToken).beat()
      await as(fresh).beat()
      const rotations = service.storage.read.selectFrom('agent_rotations').selectAll()
      expect(await rotations.execute()).toMatchObject([{ device_id: deviceId, pending_token_hash: null }])
    })

    it('is accepted even when it is confirmed between two queries of its authentication', async () => {
      const { as, authToken, agentId, service, clock } = await start()
      const { authToken: fresh } = await as(authToken).rotate()
      const letIn = (read: Db) => agentAuthenticator({ read })(agentId, fresh, { now: clock() })
      expect(await letIn(service.storage.read)).toMatchObject({ role: 'agent', standing: 'pending' })
      const db = interrupted(service.storage.read, () => as(fresh).confirm())
      expect(await letIn(db)).toMatchObject({ role: 'agent', standing: 'current' })
    })

    it('leaves an audit entry for each step, and appears nowhere itself', async () => {
      const { as, authToken, client, deviceId } = await start()
      const fresh = await as(authToken).rotate()
      await as(fresh.authToken).confirm()
      const { data } = await client.call(api.auditLogs.list, { query: { limit: 10 } })
      expect(data.slice(0, 2)).toMatchObject([
        { action: 'agent.token.confirm', resource: { id: deviceId, name: 'till-1' } },
        { action: 'agent.token.rotate', details: { pendingExpiresAt: fresh.pendingExpiresAt } },
      ])
      for (const token of [fresh.authToken, fresh.watchdogAuthToken]) {
        expect(JSON.stringify(data)).not.toContain(token.slice(4))
      }
    })

    it('replaced by enrolling again ends with every pending rotation', async () => {
      const { as, authToken, service, client } = await start()
      const pending = await as(authToken).rotate()
      const { key } = await client.call(api.enrollmentKeys.create, { body: { name: 'again' } })
      const machine = { osType: 'linux', osVersion: 'Debian 12', architecture: 'x64' } as const
      const again = await service.client(pending.authToken).call(api.agents.enroll, {
        body: { enrollmentKey: key, hostname: 'till-1', agentVersion: '0.1.0', ...machine },
      })
      const params = { id: again.agentId }
      const beat = (token: string) =>
        service.client(token).call(api.agents.heartbeat, {
          params,
          body: { status: 'ok', agentVersion: '0.1.0' },
        })
      for (const token of [authToken, pending.authToken, pending.watchdogAuthToken]) {
        await expect(beat(token)).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
      }
      await beat(again.authToken)
      await beat(again.watchdogAuthToken)
    })
  })

  describe('a rotation', () => {
    it('is deleted once it cannot continue', async () => {
      const { as, authToken, clock, service } = await start()
      const sweep = () => service.storage.write((tx) => sweepRotations(tx, addSeconds(clock(), -86_400)))
      const count = async () =>
        (await service.storage.read.selectFrom('agent_rotations').select('device_id').execute()).length
      const { authToken: fresh } = await as(authToken).rotate()
      await sweep()
      expect(await count()).toBe(1)
      await as(fresh).confirm()
      clock.forward(86_400)
      await sweep()
      expect(await count()).toBe(1)
      clock.forward(301)
      await sweep()
      expect(await count()).toBe(0)
      expect(await as(fresh).confirm()).toEqual({ success: true })
    })

    it('never locks out a correct agent, and accepts no token after its end, whatever is lost', async () => {
      const { service, enroll, clock } = await start()
      let machines = 0
      const fate = fc.constantFrom('arrives', 'answer lost', 'request lost')
      const step = fc.oneof(
        fc.record({ does: fc.constant('rotate' as const), fate }),
        fc.record({ does: fc.constant('confirm' as const), fate }),
        fc.record({ does: fc.constant('wait' as const), seconds: fc.constantFrom(1, 299, 301, 3599, 3601) }),
      )
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 14 }), async (steps) => {
          machines += 1
          const agent = new RotatingAgent(service, await enroll(`till-${machines}-of-many`), clock)
          for (const one of steps) {
            if (one.does === 'wait') clock.forward(one.seconds)
            else await agent[one.does](one.fate)
            expect(await agent.getsIn()).toBe(true)
            expect(await agent.tokensLetInTooLong()).toEqual([])
          }
        }),
        { seed, numRuns: depth(8, 100) },
      )
    })
  })

  describe('a connection', () => {
    it('of the old token ends with that token; the agent reconnects with the new one', async () => {
      const { as, authToken, agentId, clock, service } = await start()
      const connect = (token: string) => RawAgent.connect(service.url, { agentId, agentToken: token })
      const first = await connect(authToken)
      const { authToken: fresh } = await as(authToken).rotate()
      await as(fresh).confirm()
      await new Promise((resolve) => setTimeout(resolve, 1500))
      expect(first.socket.readyState).toBe(first.socket.OPEN)
      clock.forward(301)
      // Any commit triggers a check of the connections.
      await as(fresh).confirm()
      expect(await first.closed).toMatchObject({ code: 4001 })
      const path = `/api/v1/agent-ws/${agentId}/ws`
      const refused = await refusedUpgrade(service.url, path, { authorization: `Bearer ${authToken}` })
      expect(refused.status).toBe(401)
      const second = await connect(fresh)
      await as(fresh).confirm()
      await new Promise((resolve) => setTimeout(resolve, 1500))
      expect(second.socket.readyState).toBe(second.socket.OPEN)
    })

    it('is refused to a watchdog, which would replace that of the agent', async () => {
      const { watchdogAuthToken, agentId, service } = await start()
      const authorization = `Bearer ${watchdogAuthToken}`
      const path = `/api/v1/agent-ws/${agentId}/ws`
      expect(await refusedUpgrade(service.url, path, { authorization })).toMatchObject({
        status: 403,
        body: { code: 'agent_role_required' },
      })
    })
  })
})
