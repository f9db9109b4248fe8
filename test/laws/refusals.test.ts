import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { zeroId } from '../../src/core/ids.ts'
import { systemClock } from '../../src/core/time.ts'
import type { SessionContext } from '../../src/identity/rules.ts'
import { onEveryDatabase } from '../databases.ts'
import { matrixOn } from '../depth.ts'
import { adminPassword, startService, type TestService } from '../harness.ts'
import { buildWorld, tokenFor, type World } from '../world.ts'
import { newEntries } from './audited.ts'
import { callOf, type Records, toWire, unknownRecords, unread } from './calls.ts'
import { idsOf } from './fields.ts'
import { refusesIds } from './filtered-ids.ts'
import { recordsOf, userIdOf } from './fixture.ts'
import { addPerson, addPersonWithFactor, type ScenarioTools, scenarioTools } from './scenarios.ts'
import { type Answer, Line } from './wire.ts'

const entries = entriesOf(api)
const guarded = entries.filter(
  ({ entry: { access } }) =>
    access.who === 'user' && (access.permission !== undefined || access.scopes.length < 3 || access.mfa),
)
const withIds = entries.filter(({ entry }) => entry.access.who === 'user' && refusesIds(entry))

/** The audit action of a refusal: the refused change, or a refused read. */
const actionOf = ({ audit }: Endpoint): string =>
  audit && 'action' in audit ? audit.action : 'access.denied'

onEveryDatabase((kind, open) => {
  let service: TestService
  let world: World
  let hand: ScenarioTools
  let victim: Records
  let line: Line

  beforeAll(async () => {
    service = await startService(open, { env: { RATE_LIMIT_WRONG_PASSWORDS_NETWORK: '5/900' } })
    world = await buildWorld(service)
    hand = scenarioTools(service, world, systemClock)
    victim = await recordsOf(service, world.partners.acme, world.orgs.bakery)
    line = new Line(service.url)
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  /** One call by a user, with a new session. */
  async function callBy(
    name: string,
    context: SessionContext,
    entry: Endpoint,
    records: Records,
    mfa = true,
  ) {
    const id = await userIdOf(service, name)
    const token = await tokenFor(service, id, context, { mfa })
    const news = await newEntries(service)
    const answer = await line.send(toWire(entry, callOf(entry, records, { all: true }), token))
    return { id, answer, left: await news() }
  }

  describe('a refusal', () => {
    it.each(matrixOn(kind, guarded))('of $name adds its audit entry', async ({ entry }) => {
      const orgId = world.orgs.bakery.id
      const context: SessionContext = { kind: 'organization', orgId }
      const callers = [
        { name: 'bakery-viewer', mfa: true },
        { name: 'bakery-auditor', mfa: true },
        ...(entry.access.who === 'user' && entry.access.mfa ? [{ name: 'bakery-admin', mfa: false }] : []),
      ]
      const statuses: number[] = []
      for (const { name, mfa } of callers) {
        const { id, answer, left } = await callBy(name, context, entry, victim, mfa)
        statuses.push(answer.status)
        if (answer.status !== 403) continue
        expect(left).toHaveLength(1)
        expect(left[0]).toMatchObject({
          action: actionOf(entry),
          actorType: 'user',
          actorId: id,
          actorEmail: `${name}@example.com`,
          orgId,
          result: 'denied',
          errorMessage: (JSON.parse(answer.text) as { error: string }).error,
          details: { method: entry.method, path: entry.path },
        })
      }
      expect(statuses).toContain(403)
    })

    it.each(matrixOn(kind, withIds))(
      'to show or change a record outside the scope adds its audit entry: $name',
      async ({ name: entryName, entry }) => {
        const { garage } = world.orgs
        const strangers: [string, SessionContext, string | null][] = [
          ['garage-admin', { kind: 'organization', orgId: garage.id }, garage.id],
          ['globex-admin', { kind: 'partner', partnerId: world.partners.globex }, null],
        ]
        for (const [name, context, orgId] of strangers) {
          for (const records of [victim, unknownRecords()]) {
            const { id, answer, left } = await callBy(name, context, entry, records)
            const goesHome = idsOf(entry).some(({ part, path }) =>
              unread.includes(`${entryName} ${part}.${path.join('.')}`),
            )
            if (goesHome && context.kind === 'organization') {
              expect(answer.status).toBe(201)
              continue
            }
            if (![403, 404].includes(answer.status)) {
              expect([200, 400]).toContain(answer.status)
              expect(left).toEqual([])
              continue
            }
            expect(left).toHaveLength(1)
            expect(left[0]).toMatchObject({ action: actionOf(entry), actorId: id, orgId, result: 'denied' })
          }
        }
      },
    )

    it.each(matrixOn(kind, withIds))(
      'is not audited when a system administrator mistypes an ID: $name',
      async ({ entry }) => {
        const { answer, left } = await callBy('admin', { kind: 'system' }, entry, unknownRecords())
        expect([200, 404]).toContain(answer.status)
        expect(left).toEqual([])
      },
    )
  })

  describe('a failed sign-in', () => {
    type Failure = { answer: Answer; entry: Record<string, unknown> }
    const failures: Record<string, () => Promise<Failure>> = {
      'with a wrong password': async () => {
        const { id, email, org } = await addPerson(hand)
        const entry = { action: 'user.login.failed', actorId: id, actorEmail: email, orgId: org.id }
        return { answer: await login(email, 'not the password'), entry }
      },
      'of an unknown user': async () => ({
        answer: await login('nobody@example.com', 'any password'),
        entry: {
          action: 'user.login.failed',
          actorId: zeroId,
          actorEmail: 'nobody@example.com',
          orgId: null,
        },
      }),
      'from a network that was stopped': async () => {
        const { id, email, org } = await addPerson(hand)
        for (let i = 0; i < 5; i += 1) await login(email, 'not the password')
        const entry = { action: 'user.login.failed', actorId: id, actorEmail: email, orgId: org.id }
        return { answer: await login(email, adminPassword), entry }
      },
      'with a wrong code': async () => {
        const { id, email, org, enable } = await addPersonWithFactor(hand)
        await enable()
        const { text } = await login(email, adminPassword)
        const { tempToken } = JSON.parse(text) as { tempToken: string }
        const body = JSON.stringify({ tempToken, code: '000000' })
        return {
          answer: await line.send({ method: 'POST', path: '/api/v1/auth/mfa/verify', body }),
          entry: { action: 'user.login.failed', actorId: id, actorEmail: email, orgId: org.id },
        }
      },
      'with a used refresh token': async () => {
        const { id, email, org } = await addPerson(hand)
        const { text } = await login(email, adminPassword)
        const { tokens } = JSON.parse(text) as { tokens: { refreshToken: string } }
        const [sessionId] = tokens.refreshToken.split('.')
        const body = JSON.stringify({ refreshToken: `${sessionId}.${'x'.repeat(43)}` })
        return {
          answer: await line.send({ method: 'POST', path: '/api/v1/auth/refresh', body }),
          entry: { action: 'auth.refresh.reuse_detected', actorId: id, actorEmail: email, orgId: org.id },
        }
      },
      'of a machine with an unknown key': async () => ({
        answer: await enroll('f'.repeat(64)),
        entry: { action: 'device.create', actorId: zeroId, orgId: null },
      }),
      'of a machine with an exhausted key': async () => {
        const org = await hand.fresh()
        const { key } = await service
          .client(world.tokens.system)
          .call(api.enrollmentKeys.create, { body: { orgId: org.id, name: 'once' } })
        await enroll(key)
        return { answer: await enroll(key), entry: { action: 'device.create', orgId: org.id } }
      },
    }

    it.each(Object.keys(failures))('%s adds its audit entry', async (name) => {
      const before = await newEntries(service)
      const { answer, entry } = await failures[name]!()
      expect(answer.status).toBe(401)
      const left = await before()
      expect(left.at(-1)).toMatchObject({ ...entry, result: 'failure', ipAddress: '127.0.0.1' })
      const { action } = entry as { action: string }
      const failed = left.filter((one) => one.action === action && one.result === 'failure')
      expect(failed).toHaveLength(name === 'from a network that was stopped' ? 6 : 1)
      expect(JSON.stringify(left)).not.toMatch(/not the password|correct horse/)
    })
  })

  const login = (email: string, password: string): Promise<Answer> =>
    line.send({ method: 'POST', path: '/api/v1/auth/login', body: JSON.stringify({ email, password }) })

  const enroll = (enrollmentKey: string): Promise<Answer> => {
    const body = JSON.stringify({ ...api.agents.enroll.example, enrollmentKey })
    return line.send({ method: 'POST', path: '/api/v1/agents/enroll', body })
  }
})
