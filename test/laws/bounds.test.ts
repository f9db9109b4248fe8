import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { api } from '../../src/api.ts'
import { bodyLimitOf, type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { unwrap } from '../../src/core/schema.ts'
import { systemClock } from '../../src/core/time.ts'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { metricsToken, scrapedValues } from '../metric-values.ts'
import { buildWorld } from '../world.ts'
import { put, toWire } from './calls.ts'
import { called, fieldsOf } from './fields.ts'
import { type Scenario, type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { Line, type Wire } from './wire.ts'
import { deep } from './wrong-values.ts'

const withBody = called(api).filter(({ entry }) => entry.body !== undefined)
const withForm = entriesOf(api).filter(({ entry }) => entry.form)

const mebi = 1024 * 1024
/** The largest allowed error response. */
const largestReply = 64 * 1024
/** Processor time, client included, of which the most expensive case takes less than half. */
const maxCpuMs = 3000

let service: TestService
let hand: ScenarioTools
let line: Line

beforeAll(async () => {
  service = await startService(() => openMigrated('sqlite'), {
    env: { OFFLINE_AFTER_SECONDS: '86400', METRICS_TOKEN: metricsToken },
  })
  hand = scenarioTools(service, await buildWorld(service), systemClock)
  line = new Line(service.url)
})
afterAll(async () => {
  await line.close()
  await service.close()
})

/** Endpoints that find a part of a text: the database reads all rows that the caller may see. */
const searching = called(api).flatMap(({ name, entry }) => {
  const field = Object.keys(entry.query?.shape ?? {}).find((key) => key === 'search' || key === 'q')
  return field === undefined ? [] : [{ name, entry, field }]
})

describe('a search', () => {
  it.each(searching)('by $name runs among the read queries, which have limits of their own', async (one) => {
    const { input, token } = await scenarioOf(one.name, one.entry, hand)
    const answered = async () => (await scrapedValues(service.url, 'svc_questions_total')).answered!
    const before = await answered()
    const query = { ...input.query, [one.field]: 'part of a text' }
    expect((await line.send(toWire(one.entry, { ...input, query }, token))).status).toBe(200)
    expect(await answered()).toBeGreaterThan(before)
  })

  it('is possible in as many places as the contract has', () => {
    expect(searching.length).toBeGreaterThan(7)
  })
})

describe('the body of a public endpoint', () => {
  it('is limited to 64 KiB', () => {
    const open = entriesOf(api).filter(({ entry }) => entry.access.who === 'public')
    expect(open.length).toBeGreaterThan(20)
    expect(open.filter(({ entry }) => bodyLimitOf(entry) > 64 * 1024)).toEqual([])
  })
})

/** An object with many fields, of about `bytes` in size. */
const keys = (bytes: number): string => {
  const count = Math.floor(bytes / 12)
  return `{${Array.from({ length: count }, (_, n) => `"${n.toString(36).padStart(8, 'k')}":1`).join()}}`
}
const elements = (count: number, one: string): string =>
  `[${Array.from({ length: count }, () => one).join()}]`

/** Bodies that are excessive in various ways, derived from a valid one. */
function excesses(entry: Endpoint, { input, token }: Scenario): [what: string, wire: Wire][] {
  const wire = toWire(entry, input, token)
  const whole = JSON.stringify(input.body ?? {})
  const holding = (text: string) =>
    `${whole.slice(0, -1)}${whole === '{}' ? '' : ','}"aFieldOfNobody":${text}}`
  const bodies: [string, string][] = [
    ['1 MiB of unknown fields', keys(mebi)],
    ['as many unknown fields as it has bytes for', keys(bodyLimitOf(entry) - 100)],
    ['as many as it may have', keys((bodyLimitOf(entry) / 50) * 12 - 100)],
    ['a name of 60 KiB', `{"${'k'.repeat(60 * 1024)}":1}`],
    ['10,000 levels', holding(deep(10_000))],
    ['10,000 levels of lists', holding(`${'['.repeat(10_000)}${']'.repeat(10_000)}`)],
    ['100,000 elements', holding(elements(100_000, '{}'))],
    ...listsOf(entry).flatMap((path): [string, string][] =>
      [
        [100_000, '0'],
        [Math.floor(bodyLimitOf(entry) / 50) - 1000, '{}'],
        [bodyLimitOf(entry) / 300, '{"a":{"b":null}}'],
      ].map(([count, one]) => {
        const said = structuredClone(input)
        put(said, 'body', path, '@here')
        const text = JSON.stringify(said.body).replace('"@here"', elements(Number(count), String(one)))
        return [`${Number(count)} of ${one} as ${path.join('.')}`, text]
      }),
    ),
  ]
  return bodies.map(([what, body]) => [what, { ...wire, body }])
}

const listsOf = ({ body }: Endpoint): string[][] =>
  fieldsOf(body)
    .filter(({ schema, path }) => unwrap(schema) instanceof z.ZodArray && !path.includes('0'))
    .map(({ path }) => path)

describe('an excessive body', () => {
  it.each(withBody)('at $name takes little processor time', async ({ name, entry }) => {
    const scenario = await scenarioOf(name, entry, hand)
    const faults: unknown[] = []
    for (const [what, wire] of excesses(entry, scenario)) {
      const isRead = wire.body!.length <= bodyLimitOf(entry)
      faults.push(...(await faultsOf(what, wire, isRead ? undefined : 413)))
    }
    expect(faults).toEqual([])
  })

  it.each(withForm)('as a form at $name takes little processor time', async ({ entry }) => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const wire = { method: entry.method, path: `/api/v1${entry.path}`, headers }
    const fields = (bytes: number) => Array.from({ length: bytes / 6 }, (_, n) => n.toString(36)).join('&')
    for (const bytes of [mebi, bodyLimitOf(entry)]) {
      const body = fields(bytes)
      expect(await faultsOf(`${bytes} bytes`, { ...wire, body })).toEqual([])
    }
  })

  it('at an unknown route is not read', async () => {
    for (const path of ['/api/v1/nowhere', '/nowhere', '/api/v1/health']) {
      const wire = { method: 'POST', path, body: keys(mebi) }
      expect(await faultsOf(path, wire, 413)).toEqual([])
    }
  })
})

describe('the faults of a body', () => {
  const refusalOf = async (body: string) => {
    const { status, text } = await line.send({ method: 'POST', path: '/api/v1/auth/login', body })
    return { status, ...(JSON.parse(text) as { details: { message: string }[]; moreDetails?: number }) }
  }
  const withUnknown = (count: number) =>
    JSON.stringify({
      email: 'a@example.com',
      password: 'a',
      ...Object.fromEntries(Array.from({ length: count }, (_, n) => [`key${n}`, n])),
    })

  it('are listed up to 50; of further ones the number is given', async () => {
    const few = await refusalOf(withUnknown(50))
    expect([few.status, few.details.length, few.moreDetails]).toEqual([400, 50, undefined])
    const many = await refusalOf(withUnknown(130))
    expect([many.status, many.details.length, many.moreDetails]).toEqual([400, 50, 80])
  })

  it('are not looked for in a body with too many fields', async () => {
    const { details } = await refusalOf(withUnknown(3000))
    expect(details).toEqual([
      { path: 'body', message: expect.stringMatching(/^must have at most \d+ fields and elements$/) },
    ])
  })
})

describe('an excessive query', () => {
  it.each(called(api))('at $name takes little processor time', async ({ name, entry }) => {
    const { input, token } = await scenarioOf(name, entry, hand)
    const wire = toWire(entry, input, token)
    const [path = ''] = wire.path.split('?')
    const many = Array.from({ length: 3000 }, (_, n) => n.toString(36)).join('&')
    expect(await faultsOf('3000 of them', { ...wire, path: `${path}?${many}` })).toEqual([])
  })
})

async function faultsOf(what: string, wire: Wire, expected?: number): Promise<string[]> {
  const from = process.cpuUsage()
  const { status, text } = await line.send(wire)
  const { user, system } = process.cpuUsage(from)
  // Not the time it took: other processes are a part of that.
  const ms = (user + system) / 1000
  return [
    ...(status >= 500 ? [`${what}: ${status} ${text.slice(0, 300)}`] : []),
    ...(Buffer.byteLength(text) > largestReply ? [`${what}: ${text.length} bytes of reply`] : []),
    ...(ms > maxCpuMs ? [`${what}: ${Math.round(ms)} ms of processor time`] : []),
    ...(expected !== undefined && status !== expected ? [`${what}: ${status} and not ${expected}`] : []),
  ]
}
