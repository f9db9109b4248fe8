import { describe, expect, it } from 'vitest'
import { migrations } from '../../../migrations/index.ts'
import type { Finding } from '../../../src/core/finding.ts'
import type { Migration } from '../../../src/storage/migrate.ts'
import { rehearse } from '../../../src/storage/rehearse.ts'
import { version } from '../../../src/version.ts'
import { openMigrated, temporaryFolder } from '../../databases.ts'
import { serviceOn } from '../../harness.ts'
import { OwnPostgres } from '../../own-postgres.ts'
import { sourcesWith } from '../../storage/migration-files.ts'
import { buildWorld } from '../../world.ts'
import { noDisk, smallDisk } from '../small-disk.ts'
import { svc } from './binary.ts'
import { backupOf, withStorage } from './filled.ts'
import { addLogs, placeWithRows } from './many-rows.ts'
import { scratchOf } from './scratches.ts'

const patience = 240_000
const mebibyte = 2 ** 20
const why = noDisk()

const drilled = async (...[args, place]: Parameters<typeof svc>) => {
  const { code, stdout, stderr } = await svc(['db', 'drill', ...args, '--json'], place)
  return { code, stderr, report: JSON.parse(stdout) }
}

describe.skipIf(why !== undefined)(`a scratch database that fills its disk (${why ?? 'tmpfs'})`, () => {
  it('on Postgres ends a drill and a rehearsal in one sentence, and is gone', {
    timeout: patience,
  }, async () => {
    const disk = await smallDisk(192 * mebibyte)
    const log = await smallDisk(256 * mebibyte)
    // No checkpoint but those that are asked for: one that finds no room ends the server.
    const settings = { max_wal_size: '192MB', checkpoint_timeout: '1h' }
    const own = await OwnPostgres.begin({ folder: disk.path, walFolder: log.path, settings })
    const place = { dataDir: await temporaryFolder(), databaseUrl: own.databaseUrl }
    const service = await serviceOn(place)
    const { orgs } = await buildWorld(service)
    await service.close()
    await withStorage(place, (storage) => addLogs(storage, orgs.bakery, 20_000))
    const { file } = await backupOf(place)

    // Not even the empty database has room, or its rows have none.
    for (const left of [1, 9, 12, 16]) {
      disk.fill(left * mebibyte)
      const { code, report } = await drilled([file], place)
      expect([code, report.verdict]).toEqual([2, 'failed'])
      const says =
        /^The disk of the Postgres server is full: the drill needs about [\d.]+ MiB there, as much as the database\./
      expect(report.findings.filter(({ state }: Finding) => state === 'error')).toMatchObject([
        { check: 'restore', message: expect.stringMatching(says) },
      ])
      expect(await scratchOf(place)).toEqual([])
      disk.empty()
    }

    disk.fill(16 * mebibyte)
    const pending: Migration = { name: '9999_pending', up: async () => {} }
    const rehearsal = rehearse(place, [...migrations, pending], {
      version,
      signal: new AbortController().signal,
      onProgress() {},
      note() {},
      ...(await sourcesWith([pending])),
    })
    await expect(rehearsal).rejects.toThrow(
      /^The disk of the Postgres server is full: the rehearsal needs about [\d.]+ MiB there/,
    )
    const left = await own.ask((client) =>
      client.query(`select datname from pg_database where datname like 'svc_rehearsal_%'`),
    )
    expect(left.rows).toEqual([])
    disk.empty()

    expect(own.log).not.toContain('PANIC')

    const { code, stderr, report } = await drilled([file], place)
    expect([code, report.verdict]).toEqual([0, 'passed'])
    expect(stderr).toMatch(/^The drill needs about [\d.]+ MiB of free disk on the Postgres server/)
  })

  it('on SQLite is refused beforehand, or ends in one sentence when the backup is larger', {
    timeout: patience,
  }, async () => {
    const { file } = await backupOf(await placeWithRows('sqlite', 30_000))
    const { dataDir, storage } = await openMigrated('sqlite')
    await storage.close()
    for (const [size, says] of [
      [1, /has [\d.]+ \w+ left, and the drill may need [\d.]+ MiB, twice the database: name another/],
      [16, /is full: the drill may need [\d.]+ MiB there: name another directory with --scratch/],
    ] as const) {
      const { path } = await smallDisk(size * mebibyte)
      const { code, stderr, report } = await drilled([file, '--scratch', path], { dataDir })
      expect([code, stderr, report.findings.length]).toEqual([2, '', 1])
      expect(report.findings[0].message).toMatch(says)
      expect(report.findings[0].message.startsWith(path)).toBe(true)
      expect(await scratchOf({ dataDir }, path)).toEqual([])
    }
  })
})
