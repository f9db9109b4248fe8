import { describe, expect, it } from 'vitest'
import { soonAfterStart } from '../../daemon/loop.ts'
import { inTurn, temporaryFolder } from '../databases.ts'
import { isSoak } from '../depth.ts'
import { serviceOn, startService } from '../harness.ts'
import { metricsToken, scrapedValues } from '../metric-values.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess, serviceEnv, until } from './process.ts'

/** Work that is done so rarely that a service which is started anew each night would never come to it. */
const rareSeconds = 600

/** Of these the first run is later, and none is missed: what they write they have collected since the start. */
const collecting = ['agent entries', 'agent events']

/** Loops that run rarely, and those of them that have not run since the start. */
async function rareLoops(url: string) {
  const intervals = await scrapedValues(url, 'svc_loop_interval_seconds')
  const runs = await scrapedValues(url, 'svc_loop_duration_seconds_count')
  const rare = Object.keys(intervals).filter((name) => intervals[name]! >= rareSeconds)
  return { rare, waiting: rare.filter((name) => !runs[name] && !collecting.includes(name)).sort() }
}

inTurn((open) => {
  it('work with a long interval is first done soon after the start', async () => {
    const first = await startService(open)
    const { orgs } = await buildWorld(first)
    const long = '2020-01-01T00:00:00.000Z'
    await first.storage.write((tx) =>
      tx
        .insertInto('agent_logs')
        .values({
          id: 'old',
          device_id: orgs.bakery.deviceId,
          org_id: orgs.bakery.id,
          timestamp: long,
          level: 'info',
          message: 'm',
          created_at: long,
          component: 'agent',
          seq: 1,
        })
        .execute(),
    )
    await first.close()
    const service = await serviceOn(first, {
      env: { METRICS_TOKEN: metricsToken, AUDIT_RETENTION_ENABLED: 'true' },
      // By then this process has the leases.
      outside: { firstRunMs: 1500 },
    })
    const { rare } = await rareLoops(service.url)
    expect(rare).toEqual(
      expect.arrayContaining([...collecting, 'old logs', 'old commands', 'ended records', 'webhook upkeep']),
    )
    // The check of the database waits a minute: test/daemon/integrity.test.ts.
    const isOnlyIntegrity = async () =>
      (await rareLoops(service.url)).waiting.every((name) => name === 'database integrity')
    await until(isOnlyIntegrity, 20_000)
    const { read } = service.storage
    const logs = () => read.selectFrom('agent_logs').select('id').where('id', '=', 'old').execute()
    await expect.poll(logs, { timeout: 10_000 }).toEqual([])
    const verified = async () =>
      (await read.selectFrom('audit_verdicts').select('chain').execute()).map(({ chain }) => chain)
    await expect.poll(verified, { timeout: 20_000 }).toEqual(expect.arrayContaining([orgs.bakery.id]))
  })
})

it('processes that start together do not do it at the same moment', () => {
  const times = Array.from({ length: 100 }, soonAfterStart)
  expect(Math.min(...times)).toBeGreaterThanOrEqual(30_000)
  expect(Math.max(...times)).toBeLessThan(60_000)
  expect(new Set(times).size).toBeGreaterThan(90)
})

describe.runIf(isSoak)('a real process, in the soak', () => {
  it('has done all of it within two minutes', { timeout: 180_000 }, async () => {
    const env = { ...serviceEnv, METRICS_TOKEN: metricsToken }
    const service = new ServeProcess({ dataDir: await temporaryFolder() }, { env })
    const url = await service.listening()
    await until(async () => (await rareLoops(url)).waiting.length === 0, 120_000)
    await service.stop()
  })
})
