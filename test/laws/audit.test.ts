import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { systemClock } from '../../src/core/time.ts'
import { joinOrganization } from '../../src/identity/memberships.ts'
import { onEveryDatabase } from '../databases.ts'
import { matrixOn } from '../depth.ts'
import { addKeeper } from '../events/listener.ts'
import { adminEmail, startService, type TestService } from '../harness.ts'
import { buildWorld, roleOf, tokenFor } from '../world.ts'
import { newEntries, secretsOf } from './audited.ts'
import { type Input, toWire } from './calls.ts'
import { mutating } from './fields.ts'
import { userIdOf } from './fixture.ts'
import {
  customScenarios,
  type Reply,
  type Scenario,
  type ScenarioTools,
  scenarioOf,
  scenarioTools,
} from './scenarios.ts'
import { type Answer, Line } from './wire.ts'

const changing = mutating(api)

const resolveValue = <T>(value: T | ((reply: Reply) => unknown), reply: Reply): unknown =>
  typeof value === 'function' ? (value as (reply: Reply) => unknown)(reply) : value

/** Scenario tools in which each new organization has a webhook that keeps all events. */
function listening(hand: ScenarioTools, service: TestService): ScenarioTools {
  const fresh = async () => {
    const org = await hand.fresh()
    await addKeeper(service, org.id)
    return org
  }
  return { ...hand, fresh }
}

/** All events, pending or fanned out; pending ones first, as events may move between the two queries. */
async function eventsIn({ storage: { read } }: TestService): Promise<{ id: string; type: string }[]> {
  const pending = await read.selectFrom('events').select(['id', 'type']).execute()
  const kept = await read
    .selectFrom('webhook_deliveries')
    .select(['event_id as id', 'event as type'])
    .where('status', '=', 'pending')
    .where('due_at', 'is', null)
    .execute()
  return [...pending, ...kept]
}

onEveryDatabase((kind, open) => {
  let service: TestService
  let hand: ScenarioTools
  let line: Line

  beforeAll(async () => {
    service = await startService(open)
    hand = listening(scenarioTools(service, await buildWorld(service), systemClock), service)
    line = new Line(service.url)
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  const call = ({ token }: Scenario, name: string, input: Input): Promise<Answer> =>
    line.send(toWire(entriesOf(api).find((one) => one.name === name)!.entry, input, token))

  describe('a change', () => {
    const changed = matrixOn(kind, changing)
    it.each(changed)('$name adds its audit entry, and none when it fails', async ({ name, entry }) => {
      const scenario = await scenarioOf(name, entry, hand)
      const news = await newEntries(service)

      // An unknown query parameter is refused by every endpoint.
      const wrong = { ...scenario.input, query: { ...scenario.input.query, nope: '1' } }
      expect(await call(scenario, name, wrong)).toMatchObject({ status: 400 })
      expect(await news()).toEqual([])

      const earlierEvents = await eventsIn(service)
      const answer = await call(scenario, name, scenario.input)
      const emitted = (await eventsIn(service)).filter(
        ({ id }) => !earlierEvents.some((one) => one.id === id),
      )
      const types = [...new Set(emitted.map(({ type }) => type))]
      expect(types.filter((type) => !entry.emits?.includes(type as never))).toEqual([])
      if (entry.emits && entry.access.who !== 'agent') expect(types).not.toEqual([])
      expect([answer.status, answer.text]).toEqual([entry.status ?? 200, expect.any(String)])
      const reply = JSON.parse(answer.text) as Reply
      const entries = await news()
      if (!entry.audit || 'unaudited' in entry.audit) return expect(entries).toEqual([])

      expect(entries).toHaveLength(1)
      expect(entries[0]).toMatchObject({
        action: entry.audit.action,
        actorType: scenario.actor.type,
        actorId: resolveValue(scenario.actor.id, reply),
        actorEmail: scenario.actor.email,
        orgId: resolveValue(scenario.orgId, reply),
        resourceType: entry.audit.resource,
        resourceId: scenario.resourceId(reply),
        result: 'success',
        errorMessage: null,
        ipAddress: '127.0.0.1',
      })
      // A PUT by an agent adds data and changes no record.
      if (entry.access.who !== 'agent' && (entry.method === 'PATCH' || entry.method === 'PUT')) {
        expect(entries[0]!.details).toMatchObject({ before: expect.anything(), after: expect.anything() })
      }
      const said = JSON.stringify(entries[0])
      const secrets = [...secretsOf(entry.body, scenario.input.body), ...secretsOf(entry.reply, reply)]
      expect(secrets.filter((secret) => said.includes(secret))).toEqual([])
      expect(scenario.token === undefined || !said.includes(scenario.token)).toBe(true)
    })

    const repeated = changed.filter(({ entry }) => entry.idempotencyKey === 'honored')
    it.each(repeated)(
      '$name repeated under its Idempotency-Key adds no entry, and is a new call in another tenant',
      async ({ name, entry }) => {
        const scenario = await scenarioOf(name, entry, hand)
        const news = await newEntries(service)
        const key = { headers: { 'idempotency-key': `again ${name}` } }
        const wire = { ...toWire(entry, scenario.input, scenario.token), ...key }
        const first = await line.send(wire)
        const one = [expect.objectContaining({ result: 'success' })]
        const audited = entry.audit !== undefined && !('unaudited' in entry.audit)
        expect([first.status, await news()]).toEqual([entry.status ?? 200, audited ? one : []])
        const earlierEvents = await eventsIn(service)
        const again = await line.send(wire)
        expect([again.status, again.text, await news()]).toEqual([first.status, first.text, []])
        const more = (await eventsIn(service)).filter(({ id }) => !earlierEvents.some((one) => one.id === id))
        expect(more).toEqual([])
        if (scenario.token !== hand.world.tokens.system) return

        // The same user with the same key in an organization does not get the stored reply of another tenant.
        const { id: orgId } = await hand.fresh()
        const userId = await userIdOf(service, 'admin')
        const membership = {
          orgId,
          userId,
          roleId: roleOf('Org Admin', 'organization'),
          siteIds: null,
          groupIds: null,
        }
        await service.storage.write((tx) => joinOrganization(tx, membership, systemClock()))
        const token = await tokenFor(service, userId, { kind: 'organization', orgId })
        await news()
        const elsewhere = await line.send({ ...toWire(entry, scenario.input, token), ...key })
        expect([name, elsewhere.status, elsewhere.status >= 400 || (await news()).length > 0]).toEqual([
          name,
          expect.any(Number),
          true,
        ])
      },
    )

    it('that conflicts with an existing record adds no audit entry', async () => {
      const client = service.client(hand.world.tokens.system)
      const news = await newEntries(service)
      const taken = client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
      await expect(taken).rejects.toMatchObject({ status: 409 })
      expect(await news()).toEqual([])
    })

    it('has a scenario for every endpoint, and no scenario is unused', () => {
      const names = new Set(entriesOf(api).map(({ name }) => name))
      expect(customScenarios.filter((name) => !names.has(name))).toEqual([])
      expect(changing.length).toBeGreaterThan(10)
    })
  })

  it('secretsOf finds the secrets of a body and a reply', () => {
    const body = { email: adminEmail, password: 'a password', code: 'x' }
    expect(secretsOf(api.auth.login.body, body)).toEqual(['a password'])
    const reply = { tokens: { accessToken: 'an access token', refreshToken: 'another', expiresInSeconds: 1 } }
    expect(secretsOf(api.auth.refresh.reply, reply)).toEqual(['an access token', 'another'])
    expect(secretsOf(api.auth.setupMfa.reply, { recoveryCodes: ['AAAA-BBBB'] })).toEqual(['AAAA-BBBB'])
  })
})
