import type { z } from 'zod'
import { api } from '../../src/api.ts'
import { type Endpoint, isMutation } from '../../src/core/endpoint.ts'
import type { Open } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { addOrg, buildWorld } from '../world.ts'
import { callOf, type Input, toWire } from './calls.ts'
import { called, fieldsOf } from './fields.ts'
import { recordsOf } from './fixture.ts'
import { scenarioOf, scenarioTools } from './scenarios.ts'
import { Line } from './wire.ts'

/** One request and response, with varying values masked. */
export type Exchange = { call: string; status: number; type: string | undefined; said: string }

/**
 * A long session: every entry of the contract, and texts, numbers and orders in which databases tend to
 * differ. The clock stands still.
 */
export async function sessionOn(open: Open): Promise<Exchange[]> {
  const clock = testClock()
  const service = await startService(open, { clock })
  const world = await buildWorld(service)
  const hand = scenarioTools(service, world, clock)
  const line = new Line(service.url)
  const mask = masker()
  const exchanges: Exchange[] = []

  async function exchange(name: string, entry: Endpoint, input: Input, token: string | undefined) {
    const { status, headers, text } = await line.send(toWire(entry, input, token))
    const call = mask(JSON.stringify({ ...input, body: blanked(entry.body, input.body) }))
    const json = text.startsWith('{') && !entry.streams
    const said = mask(json ? JSON.stringify(blanked(entry.reply, JSON.parse(text))) : text)
    exchanges.push({ call: `${name} ${call}`, status, type: headers['content-type'], said })
  }
  const say = (
    name: string,
    entry: Endpoint,
    parts: Partial<Input>,
    token: string | undefined = world.tokens.system,
  ) => exchange(name, entry, { params: {}, query: {}, body: undefined, ...parts }, token)

  for (const { name, entry } of called(api)) {
    const scenario = await scenarioOf(name, entry, hand)
    await exchange(name, entry, scenario.input, scenario.token)
    if (isMutation(entry)) continue
    const records = await recordsOf(service, world.partners.acme, world.orgs.bakery)
    await exchange(name, entry, callOf(entry, records), scenario.token)
  }

  const org = await addOrg(service, world.tokens.system, world.partners.globex, 'tricky')
  const key = await service
    .client(world.tokens.system)
    .call(api.enrollmentKeys.create, { body: { orgId: org.id, name: 'tricky', maxUsage: 1000 } })
  for (const name of texts) {
    const machine = { ...api.agents.enroll.example, enrollmentKey: key.key, hostname: name }
    await say('agents.enroll', api.agents.enroll, { body: machine }, undefined)
    await say('sites.create', api.sites.create, {
      body: { orgId: org.id, name, settings: { [name]: numbers } },
    })
  }
  for (const page of ['1', '2', '3', '1000000']) {
    await say('devices.list', api.devices.list, { query: { page, limit: '10' } })
    await say('sites.list', api.sites.list, { query: { orgId: org.id, page, limit: '7' } })
  }
  for (const search of needles) {
    await say('devices.list', api.devices.list, { query: { search, limit: '100' } })
    for (const part of ['user', 'action', 'resource']) {
      await say('auditLogs.list', api.auditLogs.list, { query: { [part]: search, limit: '5' } })
    }
    if (search !== '') {
      const query = { q: search, limit: '3', excludeActions: withRandomText }
      await say('auditLogs.search', api.auditLogs.search, { query })
    }
  }

  const agent = { params: { id: org.agentId } }
  for (const number of numbers) {
    const metrics = { cpuPercent: number, ramUsedMb: number, diskUsedGb: number, processCount: number }
    const beat = { status: 'ok', agentVersion: '0.1.0', uptime: number, metrics }
    await say('agents.heartbeat', api.agents.heartbeat, { ...agent, body: beat }, org.agentToken)
    const disks = [{ mountPoint: '/', totalGb: number, usedPercent: number }]
    const hardware = { cpuCores: number, ramTotalMb: number, diskTotalGb: number }
    const body = { disks, hardware, network: texts.map((name) => ({ name, isPrimary: true })) }
    await say('agents.inventory', api.agents.inventory, { ...agent, body }, org.agentToken)
    await say('devices.show', api.devices.show, { params: { id: org.deviceId } })
  }
  await say('auditLogs.chain', api.auditLogs.chain, { query: { orgId: org.id } })

  await line.close()
  await service.close()
  return exchanges
}

/** Case, accents, width, ligatures, byte order, and special characters of LIKE and SQL. */
const texts = [
  'zebra',
  'Zebra',
  'apple',
  'Äpfel',
  'äpfel',
  '10',
  '9',
  '_x',
  '%',
  'a%b',
  'a_b',
  'a\\b',
  "O'Brien",
  '"q"',
  'ΣΊΣΥΦΟΣ',
  'σίσυφος',
  'STRASSE',
  'straße',
  'İstanbul',
  'ISTANBUL',
  'ı',
  'ﬁn',
  'Ångström',
  'Å',
  'É',
  'É',
  '東京',
  '🚀 rocket',
  'ＦＵＬＬ',
  'tab\there',
  'two\nlines',
  ' spaces ',
  '\u200bzero',
  'null',
  'ⅷ',
  'Ǆ',
  'ß',
]

/** Their entries have the prefix or the fingerprint of a key, whose letters are random: they would be found or not. */
const withRandomText = [
  ...['create', 'update', 'revoke', 'rotate'].map((what) => `api_key.${what}`),
  'agent.key.register',
  'agent.token.recover',
].join()

const needles = [
  '',
  'é',
  'σίσυφοσ',
  'strasse',
  'ss',
  'i',
  'I',
  '%',
  '_',
  '\\',
  "'",
  'fi',
  'å',
  '🚀',
  'full',
  ' ',
  '東',
  'ǆ',
]

const numbers = [
  0,
  -0,
  1,
  0.1 + 0.2,
  33.333333333333336,
  1e-7,
  99.99999999999999,
  4096,
  2 ** 31,
  2 ** 40,
  2 ** 53,
  1e15,
]

/** Replaces IDs, tokens and hashes by numbers in order of appearance, so that references stay visible. */
function masker(): (text: string) => string {
  const known = new Map<string, number>()
  const numbered = (kind: string) => (found: string) => {
    if (!known.has(found)) known.set(found, known.size)
    return `<${kind} ${known.get(found)}>`
  }
  return (text) =>
    text
      // Cursors differ only by the IDs in them.
      .replace(/(?<="nextCursor":")[\w-]+/g, (cursor) =>
        JSON.stringify(Buffer.from(cursor, 'base64url').toString()).slice(1, -1),
      )
      .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g, numbered('id'))
      .replace(/\b[0-9a-z]{8}\.[\w-]{22}\.[\w/+]{43}=/g, numbered('challenge'))
      .replace(/(?<=\\n|")[\w/+]{43}=/g, numbered('bytes'))
      .replace(/SHA256:[\w/+]{43}/g, numbered('fingerprint'))
      .replace(/(?<=keyId\W+|<id \d+>\+)[0-9a-f]{8}(?=\W)/g, numbered('key id'))
      .replace(/(?<= )[\w/+]{91}=/g, numbered('signature'))
      .replace(/\b(svc_)?[0-9a-f]{64}\b/g, numbered('hash'))
      .replace(/\bsvc_[\w-]{8}(?:[\w-]{24})?(?=\\?")/g, '<key>')
      .replace(/(?<=http:\/\/127\.0\.0\.1:)\d+/g, '<port>')
      .replace(/"uptime":[\d.]+/g, '"uptime":0')
      // Users of the world are created in real time; everything else uses the clock.
      .replace(/(?<=")(?!2026-03-01T)\d{4}-\d\d-\d\dT[\d:.]+Z(?=\\?")/g, '<time>')
}

/** A value without the texts that its schema marks as secret. */
function blanked(schema: z.ZodType | undefined, value: unknown): unknown {
  const copy = structuredClone(value)
  for (const { path, secret, leaf } of fieldsOf(schema)) if (secret && leaf) blank(copy, path)
  return copy
}

function blank(value: unknown, [step = '', ...rest]: string[]): void {
  if (value === null || typeof value !== 'object') return
  const at = value as Record<string, unknown>
  for (const one of step === '0' && Array.isArray(value) ? Object.keys(value) : [step]) {
    if (rest.length > 0) blank(at[one], rest)
    else if (typeof at[one] === 'string') at[one] = '<secret>'
  }
}

/** The exchanges in which two sessions differ. */
export function parting(one: readonly Exchange[], other: readonly Exchange[]): string[] {
  const at = one.findIndex((exchange, i) => JSON.stringify(exchange) !== JSON.stringify(other[i]))
  if (at === -1) return one.length === other.length ? [] : ['one is longer']
  const texts = [one[at], other[at]].map((exchange) => JSON.stringify(exchange))
  const from = [...texts[0]!].findIndex((letter, i) => letter !== texts[1]![i])
  return texts.map(
    (text) => `${at}: ${text.slice(0, 120)} … ${text.slice(Math.max(0, from - 60), from + 200)}`,
  )
}
