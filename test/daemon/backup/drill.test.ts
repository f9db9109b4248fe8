import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { archiveName } from '../../../daemon/backup/archive-name.ts'
import { backupMetrics } from '../../../daemon/backup/backup-watch.ts'
import { findRun } from '../../../daemon/backup/runs.ts'
import { WriteGate } from '../../../src/storage/copy/write-gate.ts'
import { createScratchDatabase } from '../../../src/storage/postgres/scratch-database.ts'
import { onEveryDatabase, openMigrated, temporaryFolder } from '../../databases.ts'
import { startService, testSecrets } from '../../harness.ts'
import { metricValues } from '../../metric-values.ts'
import { buildWorld } from '../../world.ts'
import { until } from '../process.ts'
import { SvcProcess, svc } from './binary.ts'
import { backupOf, type Place, withStorage } from './filled.ts'
import { scratchOf } from './scratches.ts'

const patience = 180_000

const entriesOf = (place: Place) =>
  withStorage(place, async ({ read }) => {
    const rows = await read
      .selectFrom('audit_logs')
      .select('canonical')
      .where('chain', '=', 'system')
      .execute()
    return rows
      .map(({ canonical }) => JSON.parse(canonical))
      .filter(({ action }) => action === 'database.drill')
  })

it('a drill leaves the service open for writes', async () => {
  const { storage, databaseUrl, dataDir } = await openMigrated('postgres')
  const scratch = await createScratchDatabase(databaseUrl!, { purpose: 'drill', note() {} })
  const gate = new WriteGate({ storage, dataDir }, () => {})
  try {
    await gate.look()
    expect(gate.closure).toBeUndefined()
  } finally {
    gate.close()
    await scratch.drop()
    await storage.close()
  }
})

onEveryDatabase((kind, open) => {
  async function backedUp() {
    const service = await startService(open)
    await buildWorld(service)
    await service.close()
    const place = { dataDir: service.dataDir, databaseUrl: service.databaseUrl }
    const target = await temporaryFolder()
    return { place, target, newest: await backupOf(place, { out: target }) }
  }

  it('fails at a damaged backup, and says so everywhere', { timeout: patience }, async () => {
    const { place, target, newest } = await backedUp()
    const bytes = await readFile(newest.file)
    bytes[Math.floor(bytes.length / 2)]! ^= 1
    await writeFile(newest.file, bytes)
    const { code, stdout } = await svc(['db', 'drill', target, '--json'], place)
    expect(code).toBe(2)
    const report = JSON.parse(stdout)
    expect(report).toMatchObject({ verdict: 'failed', errors: 1, backup: { file: newest.file } })
    expect(report.findings.at(-1)).toMatchObject({
      check: 'restore',
      state: 'error',
      message: expect.stringMatching(/ is damaged: /),
      remedy: expect.stringContaining('svc db backup'),
    })
    expect(await scratchOf(place)).toEqual([])
    expect(await entriesOf(place)).toMatchObject([
      { result: 'failure', details: { verdict: 'failed', faults: [expect.stringMatching(/ is damaged: /)] } },
    ])
    await withStorage(place, async (storage) => {
      const metrics = backupMetrics(storage, { schedule: undefined, drillSchedule: undefined })
      await metrics.refresh()
      expect(await metricValues(metrics.registry, 'svc_drill_failures_total')).toEqual({ '': 1 })
      expect(await metricValues(metrics.registry, 'svc_drill_last_success_timestamp_seconds')).toEqual({
        '': 0,
      })
    })
  })

  it('restores the newest backup of a directory, and says so everywhere', { timeout: patience }, async () => {
    const { place, target, newest } = await backedUp()
    const { code, stdout, stderr } = await svc(['db', 'drill', target], place)
    expect(code).toBe(0)
    const need =
      /^The drill needs about [\d.]+ MiB of free disk on the Postgres server, as much as the database\n$/
    expect(stderr).toMatch(kind === 'sqlite' ? /^$/ : need)
    const checks = [
      'backup',
      'archive',
      'tables',
      'restore',
      'database schema',
      'keys',
      'encrypted values',
      'audit log',
    ]
    for (const check of checks) expect(stdout).toMatch(new RegExp(`^✓ ${check} `, 'm'))
    expect(stdout).toMatch(/All is well\n$/)
    expect(stdout.split('\n').filter((line) => line.length > 80)).toEqual([])
    expect(await scratchOf(place)).toEqual([])
    expect(await entriesOf(place)).toMatchObject([
      {
        result: 'success',
        details: {
          verdict: 'passed',
          backup: { file: newest.file, madeAt: newest.madeAt, bytes: newest.bytes },
        },
      },
    ])
    const run = await withStorage(place, ({ read }) => findRun(read, 'drill'))
    expect(run).toMatchObject({ bytes: newest.bytes, failures: 0, failed_at: null })
  })

  it('finds one that is missing, of other keys, or encrypted', { timeout: patience }, async () => {
    const { place, target, newest } = await backedUp()
    const empty = await temporaryFolder()
    const none = await svc(['db', 'drill', empty], place)
    expect([none.code, none.stdout.replace(/\s+/g, ' ')]).toEqual([
      2,
      expect.stringContaining('There is no backup in'),
    ])
    // An archive of somebody else that is newer, in the same directory, is not taken for one's own.
    await writeFile(join(target, archiveName('2999-01-01T00:00:00.000Z', false)), 'of somebody else')
    const { generateIdentity, identityToRecipient } = await import('age-encryption')
    const identity = await generateIdentity()
    const key = join(empty, 'key.txt')
    await writeFile(key, `${identity}\n`)
    const sealed = join(empty, 'of.backup.age')
    await backupOf(place, { out: sealed, recipient: [await identityToRecipient(identity)] })
    const closed = await svc(['db', 'drill', sealed, '--json'], place)
    expect(closed).toMatchObject({ code: 2, stdout: '' })
    expect(JSON.parse(closed.stderr.trimEnd().split('\n').at(-1)!).error).toMatchObject({
      code: 'usage',
      message: `${sealed} is encrypted: name the file of your identity with --identity`,
    })
    const unread = await svc(['db', 'drill', sealed, '--identity', join(empty, 'none.txt')], place)
    expect([unread.code, unread.stderr]).toEqual([2, expect.stringContaining('Cannot read --identity')])
    // Neither was a drill: that of the empty directory was.
    expect(await entriesOf(place)).toHaveLength(1)
    expect(await withStorage(place, ({ read }) => findRun(read, 'drill'))).toMatchObject({ failures: 1 })
    expect(await scratchOf(place)).toEqual([])
    const otherKeys = { ...testSecrets, JWT_SECRET: '5kV4sQm2Tn7dY0bWc9uZr1xGf6hJ8pLaE3oKiNvBtCU=' }
    const foreign = await svc(['db', 'drill', newest.file, '--json'], place, otherKeys)
    const [fault] = JSON.parse(foreign.stdout).findings as { message: string }[]
    expect(fault?.message).toMatch(
      /other keys than those of the service: JWT_SECRET\. Drill it with .*JWT_SECRET_PREVIOUS/,
    )
    expect(fault?.message).not.toMatch(/--without-keys|scratch/)
    const opened = await svc(['db', 'drill', sealed, '--identity', key, '--json'], place)
    expect([opened.code, JSON.parse(opened.stdout).verdict]).toEqual([0, 'passed'])
    const own = await svc(['db', 'drill', target, '--json'], place)
    expect(JSON.parse(own.stdout).backup.file).toBe(newest.file)
    await rename(newest.file, join(target, 'other.backup'))
    expect((await svc(['db', 'drill', target], place)).code).toBe(2)
  })

  it('that is killed leaves what the next one removes', { timeout: patience }, async () => {
    const { place, target } = await backedUp()
    const killed = new SvcProcess(['db', 'drill', target], place)
    const wanted = kind === 'sqlite' ? 1 : 2
    await until(async () => !killed.running || (await scratchOf(place)).length === wanted, 60_000)
    killed.kill()
    expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' })
    const left = await scratchOf(place)
    expect(left).toHaveLength(wanted)
    expect((await svc(['db', 'drill', target], place)).code).toBe(0)
    expect(await scratchOf(place)).toEqual([])
  })
})
