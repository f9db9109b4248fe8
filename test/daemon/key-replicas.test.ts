import { expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { oldestBucketAt } from '../../src/credentials/api-keys/rate-limit-window.ts'
import { sweepBuckets } from '../../src/credentials/api-keys/usage.ts'
import { type Open, onEveryDatabase, openMigrated, type TestDatabase } from '../databases.ts'
import { clientOf, serviceOn } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess } from './process.ts'
import { send } from './request.ts'

/** A rate-limited key for devices, minted by a service that has ended before the test continues. */
async function mintOn(database: TestDatabase, rateLimit: number) {
  const service = await serviceOn(database)
  const world = await buildWorld(service)
  const { bakery } = world.tokens
  const body = { name: 'counted', scopes: ['devices:read'], rateLimit }
  const { id, key } = await service.client(bakery).call(api.apiKeys.create, { body })
  await service.close()
  return { id, key }
}

/** Sends so many requests at once, spread over the services; returns how many passed. */
async function passing(urls: string[], key: string, times: number): Promise<number> {
  const replies = await Promise.all(
    Array.from({ length: times }, (_, n) =>
      send(urls[n % urls.length]!, 'GET', '/api/v1/devices', { headers: { 'x-api-key': key } }),
    ),
  )
  expect(replies.filter(({ status }) => status !== 200 && status !== 429)).toEqual([])
  return replies.filter(({ status }) => status === 200).length
}

const usage = (database: TestDatabase, id: string) =>
  database.storage.read
    .selectFrom('api_keys')
    .select(['usage_count', 'last_used_at'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow()

const leased = async (database: TestDatabase, id: string): Promise<number> => {
  const rows = database.storage.read.selectFrom('api_key_buckets').select('count').where('key_id', '=', id)
  return (await rows.execute()).reduce((sum, { count }) => sum + count, 0)
}

it('two processes on one Postgres share the hourly limit of an API key, also across restarts', async () => {
  const database = await openMigrated('postgres')
  onTestFinished(database.close)
  const { id, key } = await mintOn(database, 1000)
  const place = { dataDir: database.dataDir, databaseUrl: database.databaseUrl }
  const replicas = [new ServeProcess(place), new ServeProcess(place)]
  const urls = await Promise.all(replicas.map((one) => one.listening()))

  const passed = await passing(urls, key, 2000)
  expect(passed).toBeGreaterThanOrEqual(990)
  expect(passed).toBeLessThanOrEqual(1000)
  const ended = await Promise.all(replicas.map((one) => one.stop()))
  expect(ended.map(({ code }) => code)).toEqual([0, 0])
  // After a clean end every use is stored, and no unused lease is left.
  expect((await usage(database, id)).usage_count).toBe(passed)
  expect(await leased(database, id)).toBe(passed)

  const again = new ServeProcess(place)
  const url = await again.listening()
  const more = await passing([url], key, 100)
  expect(passed + more).toBeLessThanOrEqual(1000)
  const refused = await send(url, 'GET', '/api/v1/devices', { headers: { 'x-api-key': key } })
  expect(refused).toMatchObject({
    status: 429,
    body: { code: 'rate_limited', retryAfter: expect.any(Number) },
  })
  await again.stop()
})

onEveryDatabase((kind, open: Open) => {
  it('a killed process returns nothing to the limit, and loses at most one lease', async () => {
    const database = await open()
    const { id, key } = await mintOn(database, 400)
    const place = { dataDir: database.dataDir, databaseUrl: database.databaseUrl }
    const first = new ServeProcess(place)
    const before = await passing([await first.listening()], key, 401)
    expect(before).toBe(400)
    first.kill('SIGKILL')
    await first.ended
    expect(await leased(database, id)).toBe(400)
    const second = new ServeProcess(place)
    const { status } = await send(await second.listening(), 'GET', '/api/v1/devices', {
      headers: { 'x-api-key': key },
    })
    expect([kind, status]).toEqual([kind, 429])
    await second.stop()
  })

  it('key uses are stored within 5 s, and old ones are deleted', async () => {
    const database = await open()
    const service = await serviceOn(database)
    const world = await buildWorld(service)
    const client = service.client(world.tokens.bakery)
    const body = { name: 'counted', scopes: ['devices:read'] }
    const { id, key } = await client.call(api.apiKeys.create, { body })
    const user = clientOf(service.url, undefined, { 'x-api-key': key })
    for (let n = 0; n < 3; n++) await user.call(api.devices.list)
    await expect.poll(async () => (await usage(database, id)).usage_count, { timeout: 5000 }).toBe(3)
    expect((await usage(database, id)).last_used_at).not.toBeNull()
    const bucket = oldestBucketAt(Date.now()) - 1
    await service.storage.write((tx) =>
      tx.insertInto('api_key_buckets').values({ key_id: id, bucket, count: 1000 }).execute(),
    )
    // Outside the window: it no longer counts, whether or not it was swept.
    await user.call(api.devices.list)
    await service.storage.write((tx) => sweepBuckets(tx, Date.now()))
    const buckets = database.storage.read.selectFrom('api_key_buckets').select('bucket')
    expect((await buckets.execute()).filter((row) => row.bucket <= bucket)).toEqual([])
  })
})
