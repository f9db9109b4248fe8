import pg from 'pg'
import { expect } from 'vitest'
import { api } from '../../src/api.ts'
import { openStorage } from '../../src/storage/open.ts'
import type { testCertificate } from '../cli/network.ts'
import { type Place, ServeProcess, serviceEnv, until } from '../daemon/process.ts'
import { send } from '../daemon/request.ts'
import { clientOf, serviceOn } from '../harness.ts'
import { systemToken } from '../world.ts'
import { type Got, reaching, receiver } from './receiver.ts'
import { organizationIn } from './webhook-fixture.ts'

type Certificate = ReturnType<typeof testCertificate>

/**
 * An organization with webhooks for all events, for half of them and for sign-ins, and what each received.
 */
export async function makeWorld(place: Place, certificate: Certificate) {
  const service = await serviceOn(place, { env: reaching(certificate) })
  const token = await systemToken(service)
  const { hook, orgId } = await organizationIn(service, token)
  const watch = { happened: (): void => {} }
  const answer = () => {
    watch.happened()
    return { status: 204 }
  }
  const [all, half, logins] = await Promise.all([1, 2, 3].map(() => receiver(certificate, answer)))
  const hooks = [
    { id: await hook(all!.url, { events: ['*'] }), to: all!, wants: () => true },
    { id: await hook(half!.url, { events: ['patch.installed'] }), to: half!, wants: isHalf },
    { id: await hook(logins!.url, { events: ['user.login'] }), to: logins!, wants: isLogin },
  ]
  await service.close()
  /** The events that were accepted with 202. */
  const answered: Answered[] = []
  return { token, orgId, hooks, answered, watch }
}

export type World = Awaited<ReturnType<typeof makeWorld>>

type Type = 'patch.installed' | 'patch.failed' | 'user.login'
type Answered = { id: string; type: Type }
const isHalf = ({ type }: Answered) => type === 'patch.installed'
const isLogin = ({ type }: Answered) => type === 'user.login'

/** The real service in its own process, which may reach the receivers on this machine. */
export async function started(place: Place, certificate: Certificate) {
  const env = { ...serviceEnv, ...reaching(certificate), LOG_LEVEL: 'error' }
  const service = new ServeProcess(place, { env })
  return { service, url: await service.listening() }
}

/** The same in this process, without the time to load: it sends what is left, and closes normally. */
export async function finish(place: Place, certificate: Certificate, world: World): Promise<void> {
  const service = await serviceOn(place, { env: reaching(certificate) })
  await untilQuiet(service.url, world)
  await service.close()
}

/** Calls `then` once so many more events and deliveries were answered. */
export function after(count: number, { watch }: World, then: () => void): void {
  let left = count
  watch.happened = () => {
    left -= 1
    if (left === 0) then()
  }
}

/** About 500 events per second, through these services in turn; a killed one gives no reply. */
export async function storm(urls: readonly string[], world: World, count: number): Promise<void> {
  const raiseOne = (n: number) =>
    raise(urls[n % urls.length]!, world, n % 2 === 0 ? 'patch.installed' : 'patch.failed')
  const begin = performance.now()
  const sent: Promise<void>[] = []
  while (sent.length < count) {
    while (sent.length < Math.min(count, (performance.now() - begin) / 2)) sent.push(raiseOne(sent.length))
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  await Promise.all(sent)
}

/** A killed service does not answer, but may have stored the event. */
export async function raise(url: string, world: World, type: Type): Promise<void> {
  const { token, orgId, answered, watch } = world
  const sent = { token, body: { orgId, type, data: { at: answered.length } } }
  const reply = await send<{ id: string }>(url, 'POST', '/api/v1/events', sent).catch(() => undefined)
  if (!reply) return
  expect(reply.status).toBe(202)
  answered.push({ id: reply.body.id, type })
  watch.happened()
}

/** Waits until every accepted event has arrived and its outcome is recorded. */
export async function untilQuiet(url: string, { token, hooks, answered }: World): Promise<void> {
  const client = clientOf(url, token)
  for (const { id, to, wants } of hooks) {
    const wanted = answered.filter(wants).map((one) => one.id)
    await until(async () => {
      const got = new Set(to.ids())
      if (!wanted.every((one) => got.has(one))) return false
      const { deliveryStats, successCount } = await client.call(api.webhooks.show, { params: { id } })
      const { total, delivered } = deliveryStats
      return total === delivered && total === successCount
    }, 40_000)
  }
}

/** After the service has stopped: its rows, the accepted events and the received deliveries agree. */
export async function checkWhole(place: Place, { hooks, answered }: World, kills: number): Promise<void> {
  const storage = await openStorage({
    dataDir: place.dataDir,
    ...(place.databaseUrl && { databaseUrl: place.databaseUrl }),
  })
  try {
    const db = storage.read
    expect(await db.selectFrom('events').select('id').execute()).toEqual([])
    for (const { id, to, wants } of hooks) {
      const rows = await db
        .selectFrom('webhook_deliveries')
        .select(['id', 'seq', 'event_id', 'status'])
        .where('webhook_id', '=', id)
        .orderBy('seq')
        .execute()
      expect(rows.map(({ seq }) => seq)).toEqual(rows.map((_, n) => n + 1))
      expect(new Set(rows.map((row) => row.event_id)).size, 'one delivery of each event').toBe(rows.length)
      expect(rows.filter(({ status }) => status !== 'delivered')).toEqual([])
      const known = new Set(rows.map((row) => row.event_id))
      expect(answered.filter((one) => wants(one) && !known.has(one.id))).toEqual([])

      const name = ({ headers: of, body }: Got) =>
        `${of['x-service-sequence']} ${of['x-service-delivery-id']} ${of['x-service-event-id']} ${body}`
      expect(new Set(to.got.map(name)).size, 'what comes again comes under the same names').toBe(rows.length)
      const names = rows.map((row) => `${row.seq} ${row.id} ${row.event_id}`)
      const got = to.got.map((one) => name(one).split(' ').slice(0, 3).join(' '))
      expect([...new Set(got)].sort()).toEqual([...names].sort())
      expect(to.got.length - rows.length, 'only what was on its way comes again').toBeLessThanOrEqual(
        4 * kills,
      )

      const queue = await db
        .selectFrom('webhook_queues as q')
        .innerJoin('webhook_counts as c', 'c.webhook_id', 'q.webhook_id')
        .select(['q.last_seq', 'c.success_count', 'q.due_at', 'q.holder'])
        .where('q.webhook_id', '=', id)
        .executeTakeFirstOrThrow()
      const count = rows.length
      expect(queue).toEqual({ last_seq: count, success_count: count, due_at: null, holder: null })
    }
  } finally {
    await storage.close()
  }
}

/** The workers that have sent deliveries on a Postgres, and what they hold. */
export async function workersOn(databaseUrl: string) {
  const client = new pg.Client(databaseUrl)
  await client.connect()
  const column = async (text: string, values: unknown[] = []): Promise<string[]> =>
    (await client.query({ text, values, rowMode: 'array' })).rows.map(([first]) => first as string)
  return {
    ids: () => column('select id from webhook_workers'),
    aliveUntil: async (id: string) =>
      (await column('select alive_until from webhook_workers where id = $1', [id]))[0],
    /** Makes these workers look dead to others. */
    async haveDied(ids: readonly string[]): Promise<void> {
      const past = '2000-01-01T00:00:00.000Z'
      await client.query('update webhook_workers set alive_until = $1 where id = any($2)', [past, ids])
    },
    holders: () => column('select distinct holder from webhook_queues where holder is not null'),
    close: () => client.end(),
  }
}
