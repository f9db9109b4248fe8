import { connect } from 'node:net'
import { Registry } from 'prom-client'
import { expect, it, onTestFinished } from 'vitest'
import { IntegrityWatch } from '../../daemon/integrity-watch.ts'
import { logInto } from '../../daemon/log.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase, openMigrated, type TestDatabase } from '../databases.ts'
import { serviceOn, startService } from '../harness.ts'
import { metricValues } from '../metric-values.ts'
import { heldCheck } from '../storage/integrity-process.ts'
import { buildWorld } from '../world.ts'
import { asking, damaged } from './damage.ts'
import { type Place, ServeProcess, serviceEnv } from './process.ts'
import { send } from './request.ts'

const token = 'a token for metrics, of thirty-two bytes'
const every = (seconds: number) => ({ DATABASE_INTEGRITY_CHECK_SECONDS: `${seconds}`, METRICS_TOKEN: token })

type Line = { level: number; msg: string; loop?: string; found?: string[]; trouble?: string }

/** The real service, with its log, its readiness and its metrics. */
async function startWatched(place: Place, env: Record<string, string>) {
  const lines: Line[] = []
  const log = logInto({ write: (line) => void lines.push(JSON.parse(line)) }, 'info')
  const { url } = await serviceOn(place, { env, outside: { log } })
  return { url, lines, ...probesOf(url) }
}

const probesOf = (url: string) => ({
  ready: async () => {
    const { status, body } = await send<{ checks: { database: string } }>(url, 'GET', '/health/ready')
    return [status, body.checks.database]
  },
  metric: async (name: string) => {
    const reply = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })
    const line = (await reply.text()).split('\n').find((one) => one.startsWith(`${name} `))
    return Number(line?.split(' ')[1])
  },
})

const checks = (verdict: string) => `svc_database_integrity_checks_total{verdict="${verdict}"}`
const lastCheck = 'svc_database_integrity_last_check_timestamp_seconds'
const soon = { timeout: 60_000 }

async function openSqlite(): Promise<TestDatabase> {
  const database = await openMigrated('sqlite')
  onTestFinished(database.close)
  await database.storage.close()
  return database
}

onEveryDatabase((kind, open) => {
  it('readiness, metrics and the log report a damaged page that no request reads', async () => {
    const first = await startService(open)
    await buildWorld(first)
    await first.close()
    const place = await damaged(kind, first, ['scripts'])
    if (kind === 'postgres') {
      // A backup or a person reads the page; this service does not.
      const read = asking(place.databaseUrl!, (client) => client.query('select * from scripts'))
      await expect(read).rejects.toMatchObject({ code: 'XX001' })
    }
    const { ready, metric, lines } = await startWatched(place, every(2))
    expect(await ready()).toEqual([200, 'ok'])
    expect(await metric('svc_database_damaged')).toBe(0)
    await expect.poll(ready, soon).toEqual([200, 'damaged: restore it from a backup'])
    expect(await metric('svc_database_damaged')).toBe(1)
    expect(await metric(checks('damaged'))).toBeGreaterThanOrEqual(1)
    expect(await metric(lastCheck)).toBeGreaterThan(Date.now() / 1000 - 60)
    // Only the check has seen it.
    expect(await metric('svc_database_failures_total{reason="damaged"}')).toBe(0)
    const said = lines.find(({ msg }) => msg === 'the database is damaged: restore it from a backup')
    const found = { sqlite: /^scripts: /, postgres: /^checksum failures: \d+, the last at / }[kind]
    expect(said).toMatchObject({ level: 50, found: [expect.stringMatching(found)] })
    if (kind === 'postgres') {
      await asking(place.databaseUrl!, (client) => client.query('select pg_stat_reset()'))
      await expect.poll(() => metric(checks('sound')), soon).toBeGreaterThanOrEqual(1)
      // Reset statistics repair nothing.
      expect(await ready()).toEqual([200, 'damaged: restore it from a backup'])
    }
  })

  it('a sound database is reported as sound, repeatedly', async () => {
    const { dataDir, databaseUrl, storage } = await open()
    await storage.close()
    const { ready, metric } = await startWatched({ dataDir, databaseUrl }, every(1))
    await expect.poll(() => metric(checks('sound')), soon).toBeGreaterThanOrEqual(2)
    expect(await metric('svc_database_damaged')).toBe(0)
    expect(await ready()).toEqual([200, 'ok'])
  })

  it('no check runs when the interval is 0', async () => {
    const { dataDir, databaseUrl, storage } = await open()
    await storage.close()
    const { metric } = await startWatched({ dataDir, databaseUrl }, every(0))
    await new Promise((resolve) => setTimeout(resolve, 1500))
    const counts = ['sound', 'damaged', 'unknown'].map((verdict) => metric(checks(verdict)))
    expect(await Promise.all([...counts, metric(lastCheck)])).toEqual([0, 0, 0, 0])
  })
})

it('a killed check is unknown, not damage, and the next check runs', async () => {
  const place = await openSqlite()
  const { ready, metric, lines } = await startWatched(place, every(1))
  const { pid } = await heldCheck(place.dataDir)
  const unknown = await metric(checks('unknown'))
  process.kill(pid, 'SIGKILL')
  await expect.poll(() => metric(checks('unknown')), soon).toBe(unknown + 1)
  const sound = await metric(checks('sound'))
  await expect.poll(() => metric(checks('sound')), soon).toBeGreaterThan(sound)
  expect(await metric(checks('damaged'))).toBe(0)
  expect(await ready()).toEqual([200, 'ok'])
  const said = lines.filter(({ loop }) => loop === 'database integrity').map(({ msg }) => msg)
  expect(said).toEqual(['background work failed', 'background work continues'])
})

it('a check has a deadline, after which its verdict is unknown', async () => {
  const { dataDir, storage, close } = await openMigrated('sqlite')
  onTestFinished(close)
  const log = { error: expect.unreachable, warn: expect.unreachable }
  const metrics = new Registry()
  const watch = new IntegrityWatch(storage, systemClock, log, metrics, 2000)
  const outcome = watch.look(new AbortController().signal).catch((error: unknown) => error)
  const held = await heldCheck(dataDir)
  expect(await outcome).toMatchObject({ name: 'TimeoutError' })
  await held.gone()
  expect(watch.isDamaged).toBe(false)
  expect(await metricValues(metrics, 'svc_database_integrity_checks_total')).toMatchObject({ unknown: 1 })
})

it('requests are answered during a check, and SIGTERM ends both', async () => {
  const place = await openSqlite()
  const service = new ServeProcess(place, { env: { ...serviceEnv, ...every(1) } })
  const { ready } = probesOf(await service.listening())
  const held = await heldCheck(place.dataDir)
  // Each readiness request reads and writes.
  for (let n = 0; n < 3; n += 1) {
    expect(await ready()).toEqual([200, 'ok'])
    await new Promise((resolve) => setTimeout(resolve, 1100))
  }
  const begun = performance.now()
  expect(await service.stop()).toEqual({ code: 0, signal: null })
  expect(performance.now() - begun).toBeLessThan(5000)
  await held.gone()
})

it('a second signal, which ends the process at once, leaves no check behind', async () => {
  const place = await openSqlite()
  const service = new ServeProcess(place, { env: { ...serviceEnv, ...every(1) } })
  const { port } = new URL(await service.listening())
  // A request whose body does not arrive keeps the first signal waiting.
  const slow = connect(Number(port), '127.0.0.1').on('error', () => {})
  onTestFinished(() => void slow.destroy())
  slow.write('POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n')
  slow.write('Content-Length: 100\r\n\r\n{')
  const held = await heldCheck(place.dataDir)
  service.kill('SIGTERM')
  await new Promise((resolve) => setTimeout(resolve, 500))
  service.kill('SIGTERM')
  expect(await service.ended).toEqual({ code: 143, signal: null })
  await held.gone()
})
