import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import { api } from '../../src/api.ts'
import { createClient } from '../../src/core/client.ts'
import { type Endpoint, entriesOf, keyRefusal } from '../../src/core/endpoint.ts'
import { openApiOf } from '../../src/core/openapi.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { matrixOn } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { newEntries } from './audited.ts'
import { callOf, toWire, unknownRecords } from './calls.ts'
import { called } from './fields.ts'
import { faultOf } from './refusal.ts'
import { type Scenario, type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { changed, dump } from './tables.ts'
import { type Answer, Line, type Wire } from './wire.ts'

/*
 * A client that sends an Idempotency-Key relies on it. Every endpoint therefore honors it, or refuses it
 * with a reason; none ignores it.
 */

const honoring = called(api).filter(({ entry }) => keyRefusal(entry) === undefined)
const refusing = called(api).filter(({ entry }) => keyRefusal(entry) !== undefined)
const onTheWay = entriesOf(api).filter(({ entry }) => entry.redirects)

const path = 'headers.idempotency-key'
const withKey = (wire: Wire, key: string): Wire => ({ ...wire, headers: { 'idempotency-key': key } })

/** Tables of all devices and versions of the service, not only of one scenario. */
const ofAll = ['agent_builds', 'agent_rollouts', 'agent_rollout_devices', 'idempotency_keys']

type Refusal = { details?: { path: string; message: string }[] }

/** The message by which an answer refuses the key, if it does. */
const saidOfKey = ({ status, text }: Answer): string | undefined =>
  status === 400
    ? (JSON.parse(text) as Refusal).details?.find((fault) => fault.path === path)?.message
    : undefined

describe('an Idempotency-Key', () => {
  it('is honored or refused at every endpoint, with many of each', () => {
    const all = [...honoring, ...refusing, ...onTheWay].map(({ name }) => name)
    expect(all.sort()).toEqual(
      entriesOf(api)
        .map(({ name }) => name)
        .sort(),
    )
    expect([honoring.length > 40, refusing.length > 40]).toEqual([true, true])
    expect(onTheWay.filter(({ entry }) => keyRefusal(entry) === undefined)).toEqual([])
  })

  it('is documented and sent exactly where it is honored', async () => {
    const { paths } = (await openApiOf(api, { title: 'svc', version: '0', description: '' })) as {
      paths: Record<string, Record<string, { operationId: string; parameters?: { name: string }[] }>>
    }
    const documented = Object.values(paths)
      .flatMap((operations) => Object.values(operations))
      .filter(({ parameters = [] }) => parameters.some(({ name }) => name === 'Idempotency-Key'))
      .map(({ operationId }) => operationId)
    const sending: string[] = []
    for (const { name, entry } of called(api)) {
      const client = createClient({
        url: 'https://svc.example.com',
        transport: async ({ headers }) => {
          if ('idempotency-key' in headers) sending.push(name)
          return { status: 200, headers: {}, body: (async function* () {})() }
        },
      })
      const whole = client.stream(entry, callOf(entry, unknownRecords()))
      for await (const _ of whole);
    }
    const honored = honoring.map(({ name }) => name)
    expect(sending).toEqual(honored)
    expect(documented.sort()).toEqual(honored.map((name) => name.replaceAll('.', '_')).sort())
  })
})

onEveryDatabase((kind, open) => {
  let service: TestService
  let hand: ScenarioTools
  let lines: [Line, Line]

  beforeAll(async () => {
    service = await startService(open, { env: { OFFLINE_AFTER_SECONDS: '86400' } })
    hand = scenarioTools(service, await buildWorld(service), systemClock)
    lines = [new Line(service.url), new Line(service.url)]
  })
  afterAll(async () => {
    for (const line of lines) await line.close()
    await service.close()
  })

  /** The rows that a call changes by table, and the messages it sends. */
  async function effectOf(act: () => Promise<unknown>): Promise<string[]> {
    const sent = async () =>
      (await readOutboxMessages(service.dataDir)).filter(({ kind }) => kind === 'sms-code')
    const [before, { length: said }] = [await dump(service.storage), await sent()]
    await act()
    const rows = changed(before, await dump(service.storage)).filter(
      (row) => !ofAll.includes(row.slice(0, row.indexOf(' '))),
    )
    const messages = (await sent()).slice(said).map(() => 'a message')
    return [...rows.map((row) => row.replace(/^(\w+ .) .*/s, '$1')), ...messages].sort()
  }

  const wireOf = (entry: Endpoint, { input, token }: Scenario): Wire => toWire(entry, input, token)

  describe('a request with an Idempotency-Key', () => {
    // Only Postgres works on two requests at once.
    it.each(kind === 'postgres' ? honoring : matrixOn('postgres', honoring))(
      'to $name sent twice at once and once more has the effect and the reply of one',
      async ({ name, entry }) => {
        const alone = await scenarioOf(name, entry, hand)
        const once = await effectOf(() => lines[0].send(wireOf(entry, alone)))

        const wire = withKey(wireOf(entry, await scenarioOf(name, entry, hand)), `twice ${name}`)
        const news = await newEntries(service)
        const answers: Answer[] = []
        const effect = await effectOf(async () => {
          answers.push(...(await Promise.all(lines.map((line) => line.send(wire)))))
          answers.push(await lines[0].send(wire))
        })
        const inProgress = answers.slice(0, 2).filter(({ text }) => text.includes('idempotency_in_progress'))
        const given = answers.filter((answer) => !inProgress.includes(answer))
        expect(inProgress.map((answer) => [answer.status, faultOf(answer)])).toEqual(
          inProgress.map(() => [409, undefined]),
        )
        expect(given.length).toBeGreaterThan(1)
        const { status, text } = given.at(-1)!
        expect(given.map((answer) => [answer.status, answer.text])).toEqual(given.map(() => [status, text]))
        expect([name, status]).toEqual([name, entry.status ?? 200])
        expect(effect).toEqual(once)
        const audited = entry.audit !== undefined && 'action' in entry.audit
        expect((await news()).filter(({ result }) => result === 'success')).toHaveLength(audited ? 1 : 0)
      },
    )

    it.each(matrixOn(kind, refusing))(
      'to $name is refused with the reason, and has no effect',
      async ({ name, entry }) => {
        const scenario = await scenarioOf(name, entry, hand)
        const news = await newEntries(service)
        const before = await dump(service.storage, { sessions: true })
        const answer = await lines[0].send(withKey(wireOf(entry, scenario), 'of no use'))
        expect(faultOf(answer, { path })).toBe(undefined)
        expect(saidOfKey(answer)).toContain(`Idempotency-Key is not honored here, leave it out: `)
        expect(saidOfKey(answer)).toContain(keyRefusal(entry))
        expect(changed(before, await dump(service.storage, { sessions: true }))).toEqual([])
        expect(await news()).toEqual([])

        // All faults are reported together.
        const wrong = toWire(
          entry,
          { ...scenario.input, query: { ...scenario.input.query, nope: '1' } },
          scenario.token,
        )
        const both = await lines[0].send(withKey(wrong, ''))
        expect([faultOf(both, { path }), faultOf(both, { path: 'query.nope' })]).toEqual([
          undefined,
          undefined,
        ])
        if (!entry.bytes) return
        const head = await lines[0].send({ ...withKey(wireOf(entry, scenario), 'x'), method: 'HEAD' })
        expect(head.status).toBe(400)
      },
    )

    it.each(onTheWay)('to $name by a redirected browser fails', async ({ entry }) => {
      const wire = toWire(entry, callOf(entry, unknownRecords()))
      const form = entry.form && {
        body: new URLSearchParams(entry.example as Record<string, string>).toString(),
        headers: { 'content-type': 'application/x-www-form-urlencoded', 'idempotency-key': 'x' },
      }
      const news = await newEntries(service)
      const { status, headers, text } = await lines[0].send({ ...withKey(wire, 'x'), ...form })
      expect([status, headers.location ?? text]).toEqual([
        expect.any(Number),
        expect.stringMatching(/invalid_request|Idempotency-Key/),
      ])
      expect(await news()).toEqual([])
    })
  })

  it('effectOf detects changed rows and sent messages', async () => {
    const effectAlone = async (name: string, entry: Endpoint) => {
      const scenario = await scenarioOf(name, entry, hand)
      return effectOf(() => lines[0].send(wireOf(entry, scenario)))
    }
    expect(await effectAlone('sites.create', api.sites.create)).toContain('sites +')
    expect(await effectAlone('auth.sendSms', api.auth.sendSms)).toContain('a message')
    expect(await effectAlone('auth.verifyPhone', api.auth.verifyPhone)).toContain('a message')
  })
})
