import { readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pino } from 'pino'
import { describe, expect, it, onTestFinished } from 'vitest'
import { backupMetrics } from '../../../daemon/backup/backup-watch.ts'
import { findRun, type RunKind } from '../../../daemon/backup/runs.ts'
import { runsIn, ScheduledRun } from '../../../daemon/backup/scheduled-runs.ts'
import { readConfig } from '../../../daemon/config.ts'
import { checkBackups } from '../../../daemon/doctor/backups.ts'
import { addSeconds, type Instant } from '../../../src/core/time.ts'
import { openStorage } from '../../../src/storage/open.ts'
import { onEveryDatabase, temporaryFolder } from '../../databases.ts'
import { serviceOn, testSecrets } from '../../harness.ts'
import { metricValues } from '../../metric-values.ts'
import { ServeProcess, serviceEnv, until } from '../process.ts'
import { noDisk, smallDisk } from '../small-disk.ts'
import { backupOf, type Place, withStorage } from './filled.ts'

/** Children have a low priority: a busy machine lets them wait. */
const patience = 300_000
const daily = '0 3 * * *'
const hour = 3600

/** A replica on a database, whose clock the test sets, and its scheduled backups or drills. */
async function replica(
  place: Place,
  env: Record<string, string>,
  clock: () => Instant,
  kind: RunKind = 'backup',
) {
  const storage = await openStorage(place)
  const { dataDir, databaseUrl } = place
  const config = readConfig({
    ...testSecrets,
    ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
    SVC_DATA_DIR: dataDir,
    BACKUP_SCHEDULE: daily,
    ...env,
  })
  const what = runsIn(config).find((one) => one.kind === kind)!
  const run = new ScheduledRun(what, { storage, clock, log: pino({ enabled: false }) })
  onTestFinished(async () => {
    await run.stop()
    await storage.close()
  })
  return { run, storage, config }
}

/** It was due long ago. */
const dueSince = (kind: RunKind, place: Place) =>
  withStorage(place, async (storage) => {
    const values = { kind, due_after: '2026-01-01T00:00:00.000Z' }
    await storage.write((tx) => tx.insertInto('backup_runs').values(values).execute())
  })

const visible = async (folder: string) =>
  (await readdir(folder)).filter((name) => /^svc-.*\.backup$/.test(name))
const drafts = async (folder: string) => (await readdir(folder)).filter((name) => name.endsWith('.part'))

onEveryDatabase((_, open) => {
  async function opened() {
    const { dataDir, databaseUrl } = await open()
    const target = await temporaryFolder()
    let now = '2026-03-01T12:00:00.000Z'
    const pass = (seconds: number) => {
      now = addSeconds(now, seconds)
    }
    return { place: { dataDir, databaseUrl }, target, clock: () => now, pass }
  }

  it('is done by one of two replicas when it is due, and is seen', { timeout: patience }, async () => {
    const { place, target, clock, pass } = await opened()
    const env = { BACKUP_TARGET: target }
    const replicas = [await replica(place, env, clock), await replica(place, env, clock)]
    const { storage, config } = replicas[0]!
    const look = async () => {
      for (const { run } of replicas) await run.poll()
      await Promise.all(replicas.map(({ run }) => run.settled()))
    }
    await look()
    expect(await visible(target), 'not due yet').toEqual([])
    const metrics = backupMetrics(storage, config.backups)
    const value = async (name: string) => {
      await metrics.refresh()
      return (await metricValues(metrics.registry, name))['']
    }
    expect(await value('svc_backup_expected_timestamp_seconds')).toBe(
      Date.parse('2026-03-02T03:00:00.000Z') / 1000,
    )
    expect(await value('svc_backup_last_success_timestamp_seconds')).toBe(0)
    const said = async () => {
      const [found] = await checkBackups(storage.read, config, clock())
      return found!
    }
    expect(await said()).toMatchObject({ state: 'warning', message: 'The database was never backed up.' })

    pass(17 * hour)
    expect(await said()).toMatchObject({ message: expect.stringContaining('has not succeeded') })
    await Promise.all(replicas.map(({ run }) => run.poll()))
    await Promise.all(replicas.map(({ run }) => run.settled()))
    await look()
    expect(await visible(target)).toHaveLength(1)
    expect(await value('svc_backup_last_success_timestamp_seconds')).toBeGreaterThan(0)
    expect(await value('svc_backup_last_size_bytes')).toBeGreaterThan(1000)
    expect(await value('svc_backup_failures_total')).toBe(0)
    const { succeeded_at } = (await findRun(storage.read, 'backup'))!
    expect(await checkBackups(storage.read, config, succeeded_at!)).toMatchObject([
      { check: 'backup', state: 'ok' },
      { check: 'restore drill', state: 'warning', remedy: expect.stringContaining(`svc db drill ${target}`) },
    ])
  })

  it('is done by a service, which keeps what its settings say', { timeout: patience }, async () => {
    const { place, target } = await opened()
    await dueSince('backup', place)
    const env = { ...serviceEnv, BACKUP_TARGET: target, BACKUP_SCHEDULE: daily }
    const service = new ServeProcess(place, { env })
    await service.listening()
    await until(() => service.stderr.includes('a scheduled run has '), 200_000)
    expect(service.stderr).toContain('a scheduled run has succeeded')
    await service.stop()
    expect([await visible(target), await drafts(target)]).toMatchObject([[{}], []])
    const run = await withStorage(place, ({ read }) => findRun(read, 'backup'))
    expect(run).toMatchObject({ failures: 0, holder: null, succeeded_at: expect.any(String) })
  })

  it('restores the newest encrypted backup as a drill, and says when one is damaged', {
    timeout: patience,
  }, async () => {
    const { place, target, clock, pass } = await opened()
    await (await serviceOn(place)).close()
    const { generateIdentity, identityToRecipient } = await import('age-encryption')
    const identity = await generateIdentity()
    const key = join(await temporaryFolder(), 'key.txt')
    await writeFile(key, `${identity}\n`, { mode: 0o600 })
    const recipient = [await identityToRecipient(identity)]
    const env = { BACKUP_TARGET: target, DRILL_SCHEDULE: daily, DRILL_IDENTITY_FILE: key }
    const replicas = [await replica(place, env, clock, 'drill'), await replica(place, env, clock, 'drill')]
    const { storage, config } = replicas[0]!
    const look = async () => {
      await Promise.all(replicas.map(({ run }) => run.poll()))
      await Promise.all(replicas.map(({ run }) => run.settled()))
      return findRun(storage.read, 'drill')
    }
    const metrics = backupMetrics(storage, config.backups)
    const value = async (name: string) => {
      await metrics.refresh()
      return (await metricValues(metrics.registry, `svc_drill_${name}`))['']
    }
    const said = async (now: Instant) => (await checkBackups(storage.read, config, now))[1]!
    const verdicts = async () => {
      const rows = await storage.read.selectFrom('audit_logs').select('canonical').orderBy('seq').execute()
      const entries = rows.map(({ canonical }) => JSON.parse(canonical))
      return entries.flatMap(({ action, details }) => (action === 'database.drill' ? [details.verdict] : []))
    }
    await look()
    expect([await verdicts(), await value('last_success_timestamp_seconds')], 'not due yet').toEqual([[], 0])
    expect(await said(clock())).toMatchObject({
      check: 'restore drill',
      state: 'warning',
      message: 'No backup was ever restored to see that it can be.',
      remedy: `svc db drill ${target} --identity ${key}`,
    })

    const { file } = await backupOf(place, { out: target, recipient })
    pass(24 * hour)
    const good = await look()
    // One of the two replicas did it.
    expect([good, await verdicts()]).toMatchObject([{ failures: 0, holder: null }, ['passed']])
    expect(await value('last_success_timestamp_seconds')).toBe(Date.parse(good!.succeeded_at!) / 1000)
    expect(await value('last_size_bytes')).toBeGreaterThan(1000)
    expect(await said(good!.succeeded_at!)).toMatchObject({ check: 'restore drill', state: 'ok' })

    const bytes = await readFile(file)
    bytes[Math.floor(bytes.length / 2)]! ^= 1
    await writeFile(file, bytes)
    pass(24 * hour)
    const bad = await look()
    expect([bad, await verdicts()]).toMatchObject([{ failures: 1, holder: null }, ['passed', 'failed']])
    expect(bad!.succeeded_at).toBe(good!.succeeded_at)
    expect(await value('failures_total')).toBe(1)
    expect(await value('last_failure_timestamp_seconds')).toBe(Date.parse(bad!.failed_at!) / 1000)
    expect(await said(bad!.failed_at!)).toMatchObject({
      state: 'warning',
      message: expect.stringMatching(/^The last one failed at .* is damaged: /),
      remedy: `mend that, then svc db drill ${target} --identity ${key}`,
    })
  })

  it('is a failure that is seen, and leaves nothing, when it is killed', { timeout: patience }, async () => {
    const { place, target, clock, pass } = await opened()
    const slow = await replica(place, { BACKUP_TARGET: target, BACKUP_LIMIT_RATE: '10' }, clock)
    await slow.run.poll()
    pass(24 * hour)
    await slow.run.poll()
    await until(async () => (await drafts(target)).length === 1, 200_000)
    const [draft] = await drafts(target)
    process.kill(Number(/\.(\d+)\.part$/.exec(draft!)![1]), 'SIGKILL')
    await slow.run.settled()
    expect(await visible(target)).toEqual([])
    const state = await findRun(slow.storage.read, 'backup')
    expect(state).toMatchObject({ failures: 1, holder: null, failure: expect.stringContaining('a signal') })
    expect(await checkBackups(slow.storage.read, slow.config, clock())).toMatchObject([
      { state: 'warning', message: expect.stringContaining('The last one failed at') },
      {},
    ])

    // Its draft goes with the next backup, once nobody has written to it for an hour.
    const fast = await replica(place, { BACKUP_TARGET: target }, clock)
    pass(24 * hour)
    await fast.run.poll()
    await fast.run.settled()
    expect([await visible(target), await drafts(target)]).toMatchObject([[expect.anything()], [draft]])
    const past = new Date(Date.now() - 2 * hour * 1000)
    await utimes(join(target, draft!), past, past)
    pass(24 * hour)
    await fast.run.poll()
    await fast.run.settled()
    expect([await visible(target), await drafts(target)]).toMatchObject([[{}, {}], []])
  })

  it('ends with its service, and another one does it', { timeout: patience }, async () => {
    const { place, target, clock, pass } = await opened()
    await dueSince('backup', place)
    const env = { ...serviceEnv, BACKUP_TARGET: target, BACKUP_SCHEDULE: daily, BACKUP_LIMIT_RATE: '10' }
    const service = new ServeProcess(place, { env })
    await service.listening()
    await until(async () => (await drafts(target)).length === 1, 200_000)
    service.kill('SIGKILL')
    await until(async () => (await drafts(target)).length === 0, 20_000)
    expect(await visible(target)).toEqual([])

    pass(Date.now() / 1000 - Date.parse(clock()) / 1000)
    const other = await replica(place, { BACKUP_TARGET: target }, clock)
    await other.run.poll()
    expect(await visible(target), 'while the claim of the first one is valid').toEqual([])
    pass(100)
    await other.run.poll()
    await other.run.settled()
    expect(await visible(target)).toHaveLength(1)
    expect(await findRun(other.storage.read, 'backup')).toMatchObject({ holder: null, failures: 0 })
  })

  it('is stopped with the service, which can be started again', { timeout: patience }, async () => {
    const { place, target, clock, pass } = await opened()
    const first = await replica(place, { BACKUP_TARGET: target, BACKUP_LIMIT_RATE: '10' }, clock)
    await first.run.poll()
    pass(24 * hour)
    await first.run.poll()
    await until(async () => (await drafts(target)).length === 1, 200_000)
    await first.run.stop()
    expect([await visible(target), await drafts(target)]).toEqual([[], []])
    const second = await replica(place, { BACKUP_TARGET: target }, clock)
    pass(1)
    await second.run.poll()
    await second.run.settled()
    expect(await visible(target)).toHaveLength(1)
  })

  describe.skipIf(noDisk() !== undefined)('to a disk', () => {
    it('that is full or read-only fails with a sentence', { timeout: patience }, async () => {
      const { place, clock, pass } = await opened()
      const disk = await smallDisk(2 ** 20)
      const { run, storage } = await replica(place, { BACKUP_TARGET: disk.path }, clock)
      await run.poll()
      const failure = async () => {
        pass(24 * hour)
        await run.poll()
        await run.settled()
        expect((await readdir(disk.path)).filter((name) => name !== 'ballast')).toEqual([])
        return (await findRun(storage.read, 'backup'))?.failure
      }
      disk.fill()
      expect(await failure()).toMatch(/^Cannot write .*\.backup: the disk is full$/)
      disk.empty()
      disk.setReadOnly()
      expect(await failure()).toMatch(/^Cannot write .*\.backup: EROFS$/)
    })
  })
})
