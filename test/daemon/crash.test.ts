import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { depth, randomFrom, seed } from '../depth.ts'
import { clientOf, serviceOn, type TestService } from '../harness.ts'
import { systemToken } from '../world.ts'
import { connectionsGone } from './connections-gone.ts'
import { type Place, ServeProcess } from './process.ts'
import { machine, readChain, send } from './request.ts'

const rounds = depth(1, 3)
const perRound = 200
const maxUsage = 25

type World = { orgId: string; token: string }
/** A create that a client sends, and sends again when it got no reply. */
type Create = { key: string; path: string; name: string; body: object }
type Made = { id?: string; deviceId?: string; agentId?: string; authToken?: string }
type Answer = Create & { status: number; made: Made; resent: boolean }

inTurn((open) => {
  it(`kill -9 loses nothing acknowledged and leaves nothing half-done (SEED=${seed})`, async () => {
    const random = randomFrom(seed)
    const database = await open()
    await database.storage.close()
    const world = await makeWorld(database)
    const answers: Answer[] = []
    let unanswered = 0

    for (let round = 1; round <= rounds; round++) {
      const service = new ServeProcess(database)
      const url = await service.listening()
      const sharedKey = await mintShared(url, world, round)
      const creates = shuffled(createsOf(world, sharedKey.key, round), random)
      // Later, all replies could be on their way before the process ends.
      const killAt = 1 + Math.floor(random() * perRound * 0.6)
      const answered = await storm(url, world, creates, (count) => {
        if (count === killAt) service.kill('SIGKILL')
      })
      await service.ended
      await connectionsGone(database)
      answers.push(...answered)
      expect(answered.length).toBeGreaterThanOrEqual(killAt)

      const restarted = await serviceOn(database)
      await checkWhole(restarted, world, answers)

      const keys = new Set(answered.map(({ key }) => key))
      const rest = creates.filter(({ key }) => !keys.has(key))
      unanswered += rest.length
      for (const one of await storm(restarted.url, world, rest)) answers.push({ ...one, resent: true })
      expect(answers).toHaveLength(round * perRound)
      await checkWhole(restarted, world, answers)
      await checkEachOnce(restarted, creates, sharedKey.id)
      await restarted.close()
    }
    expect(unanswered, 'kills in the middle').toBeGreaterThan(0)
  })
})

async function makeWorld(database: Place): Promise<World> {
  const service = await serviceOn(database)
  const token = await systemToken(service)
  const client = service.client(token)
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  const org = await client.call(api.orgs.create, { body: { partnerId, name: 'Bakery', slug: 'bakery' } })
  await service.close()
  return { orgId: org.id, token }
}

const mintShared = (url: string, { orgId, token }: World, round: number) =>
  clientOf(url, token).call(api.enrollmentKeys.create, { body: { orgId, name: `shared ${round}`, maxUsage } })

/** 70 sites, 70 keys, and 60 devices with a shared key that admits fewer. */
function createsOf({ orgId }: World, sharedKey: string, round: number): Create[] {
  const create = (path: string, body: (name: string) => object) => (_: unknown, n: number) => {
    const name = `${path} ${round}-${n}`
    return { key: name, path: `/api/v1${path}`, name, body: body(name) }
  }
  const enrollment = (name: string) => ({
    ...machine(sharedKey, name),
    hardwareInfo: { cpuModel: 'Example 9' },
    networkInfo: [{ name: 'eth0' }, { name: 'eth1' }],
  })
  return [
    ...Array.from(
      { length: 70 },
      create('/orgs/sites', (name) => ({ orgId, name })),
    ),
    ...Array.from(
      { length: 70 },
      create('/enrollment-keys', (name) => ({ orgId, name })),
    ),
    ...Array.from({ length: 60 }, create('/agents/enroll', enrollment)),
  ]
}

/** Sends everything at once; returns what was answered. */
async function storm(
  url: string,
  { token }: World,
  creates: Create[],
  onAnswer: (count: number) => void = () => {},
): Promise<Answer[]> {
  const answers: Answer[] = []
  await Promise.all(
    creates.map(async (create) => {
      const { path, body, key } = create
      try {
        const sent = { token, body, headers: { 'idempotency-key': key } }
        const { status, body: made } = await send<Made>(url, 'POST', path, sent)
        onAnswer(answers.push({ ...create, status, made, resent: false }))
      } catch {
        // The process was killed before it answered.
      }
    }),
  )
  return answers
}

/** Rows, audit entries and counts agree, in both directions, and contain everything acknowledged. */
async function checkWhole(service: TestService, { orgId, token }: World, answers: Answer[]): Promise<void> {
  const { verdict, entries } = await readChain(service.client(token), orgId)
  expect(verdict).toMatchObject({ verdict: 'sound', entries: entries.length })
  const db = service.storage.read
  // Except for the entry of this export.
  const pending = (await db.selectFrom('outbox').selectAll().execute()).map(({ entry }) => JSON.parse(entry))
  expect(pending.filter(({ action }) => action !== 'data.export')).toEqual([])

  const kinds = {
    sites: 'site.create',
    enrollment_keys: 'enrollment_key.create',
    devices: 'device.create',
  } as const
  const stored = new Set<string>()
  for (const [table, action] of Object.entries(kinds) as [keyof typeof kinds, string][]) {
    const rows = await db.selectFrom(table).select('id').where('org_id', '=', orgId).orderBy('id').execute()
    const ids = rows.map(({ id }) => id)
    const audited = entries.filter((one) => one.action === action && one.result === 'success')
    expect(audited.map((one) => one.resourceId).sort()).toEqual(ids)
    for (const id of ids) stored.add(id)
  }
  const keys = await db.selectFrom('enrollment_keys').select(['id', 'usage_count', 'max_usage']).execute()
  const devices = await db.selectFrom('devices').select(['id', 'enrollment_key_id']).execute()
  const enrolledBy = (id: string) => devices.filter((one) => one.enrollment_key_id === id).length
  expect(keys.map(({ id }) => enrolledBy(id))).toEqual(keys.map((key) => key.usage_count))
  expect(keys.filter((key) => key.usage_count > (key.max_usage ?? Infinity))).toEqual([])
  expect(await db.selectFrom('devices').select('id').where('cpu_model', 'is', null).execute()).toEqual([])
  expect(await db.selectFrom('device_interfaces').select('device_id').execute()).toHaveLength(
    devices.length * 2,
  )

  for (const { name, status, made, resent } of answers) {
    if (status === 201) expect(stored, `${name} was answered`).toContain(made.id ?? made.deviceId)
    else {
      expect({ name, status, made }).toMatchObject({
        status: 401,
        made: { code: 'enrollment_key_exhausted' },
      })
      const refused = entries.filter((one) => one.result === 'failure' && one.details.hostname === name)
      // A resent one may have been refused before the kill as well.
      expect([1, resent ? 2 : 1], `${name} was refused`).toContain(refused.length)
    }
  }
  const enrolled = answers.findLast(({ made }) => made.authToken !== undefined)?.made
  const beat = { token: enrolled?.authToken, body: { status: 'ok', agentVersion: '1' } }
  if (enrolled) {
    expect(
      (await send(service.url, 'POST', `/api/v1/agents/${enrolled.agentId}/heartbeat`, beat)).status,
    ).toBe(200)
  }
}

/** After a retry with the same Idempotency-Key each create happened once, and the shared key is used up. */
async function checkEachOnce({ storage }: TestService, creates: Create[], sharedId: string): Promise<void> {
  const of = (path: string) => creates.filter((one) => one.path.endsWith(path)).map(({ name }) => name)
  for (const [table, path] of [
    ['sites', '/sites'],
    ['enrollment_keys', '/enrollment-keys'],
  ] as const) {
    const rows = await storage.read.selectFrom(table).select('name').where('name', 'in', of(path)).execute()
    expect(rows.map(({ name }) => name).sort()).toEqual(of(path).sort())
  }
  const devices = storage.read.selectFrom('devices').select('id').where('enrollment_key_id', '=', sharedId)
  expect(await devices.execute()).toHaveLength(maxUsage)
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item)
}
