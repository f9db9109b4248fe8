import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { type Migration, migrate, pendingMigrations } from '../../src/storage/migrate.ts'
import { addToLedger } from '../../src/storage/migration-ledger.ts'
import { raiseOldestVersion } from '../../src/storage/oldest-version.ts'
import { rehearse } from '../../src/storage/rehearse.ts'
import { version } from '../../src/version.ts'
import { binary, Home } from '../cli/run.ts'
import { until } from '../daemon/process.ts'
import { onEveryDatabase, onEveryEmptyDatabase, type TestDatabase, temporaryFolder } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { schemaOf } from '../laws/schema.ts'
import { administer } from '../postgres-databases.ts'
import { rowsOf } from '../table-dump.ts'
import { buildWorld } from '../world.ts'
import { sourcesWith } from './migration-files.ts'

const quiet = () => ({ version, signal: new AbortController().signal, onProgress: () => {}, note: () => {} })

/** Copies that are still there. */
async function leftOvers(
  { databaseUrl, dataDir }: { databaseUrl?: string | undefined; dataDir: string },
  scratch = dataDir,
) {
  if (databaseUrl === undefined) return readdirSync(scratch).filter((name) => name.startsWith('rehearsal-'))
  const { rows } = await administer((client) =>
    client.query(`select datname from pg_database where datname like 'svc_rehearsal_%'`),
  )
  return rows.map(({ datname }) => datname as string)
}

/** Bytes of the file of SQLite; on Postgres, everything that is stored. */
async function imageOf({ dataDir, databaseUrl, storage }: TestDatabase): Promise<unknown> {
  if (databaseUrl !== undefined)
    return { rows: [...(await rowsOf(storage))], schema: await schemaOf(storage) }
  const hash = (name: string) =>
    createHash('sha256')
      .update(readFileSync(join(dataDir, name)))
      .digest('hex')
  return readdirSync(dataDir)
    .filter((name) => !name.endsWith('-shm'))
    .map((name) => [name, hash(name)])
}

/** What a migration sees of each table. */
const counting = (seen: Map<string, number>): Migration => ({
  name: '9998_counting',
  up: async ({ db }) => {
    for (const { name } of await db.introspection.getTables()) {
      const { rows } = await sql<{ n: number }>`select count(*) as n from ${sql.table(name)}`.execute(db)
      seen.set(name, rows[0]!.n)
    }
    await db.schema.alterTable('devices').addColumn('color', 'text').execute()
    await sql`update devices set color = 'red'`.execute(db)
    // Triggers and counters work on the copy as they do on the original.
    await db.schema.createTable('growth').addColumn('text', 'text').execute()
    for (let n = 0; n < 200; n += 1) await sql`insert into growth values (${'x'.repeat(10_000)})`.execute(db)
  },
})

onEveryDatabase((_kind, open) => {
  describe('a rehearsal', () => {
    const filled = async () => {
      const database = await open()
      const service = await serviceOn(database)
      await buildWorld(service)
      await service.close()
      return database
    }

    it('applies what is pending to a copy of all rows, measures it, and leaves the original as it was', async () => {
      const database = await filled()
      const seen = new Map<string, number>()
      const list = [...migrations, counting(seen)]
      const options = await sourcesWith(list)
      const before = await imageOf(database)
      const result = await rehearse(database, list, { ...quiet(), ...options })
      expect(await imageOf(database)).toEqual(before)
      expect(await leftOvers(database)).toEqual([])
      expect(result.copy!.bytes).toBeGreaterThan(100_000)
      expect(result.migrations).toEqual([
        {
          name: '9998_counting',
          ms: expect.any(Number),
          bytes: expect.any(Number),
          addedBytes: expect.any(Number),
        },
      ])
      const [{ bytes, addedBytes, ms }] = result.migrations as [(typeof result.migrations)[number]]
      expect(bytes).toBe(result.copy!.bytes + addedBytes)
      expect(ms).toBeGreaterThan(0)
      expect(result.ms).toBeGreaterThanOrEqual(result.copy!.ms + ms)
      const stored = await rowsOf(database.storage)
      expect(stored.get('devices')!.length).toBeGreaterThan(0)
      for (const [table, rows] of stored) expect([table, seen.get(table)]).toEqual([table, rows.length])
      expect(await pendingMigrations(database.storage, list, options)).toEqual(['9998_counting'])
    })

    it('of a database with a newer schema is refused, also when nothing is pending', async () => {
      const database = await open()
      const { storage } = database
      const later = { name: '9999_later', checksum: '0'.repeat(64) }
      await storage.write((tx) => addToLedger(tx as AnyDb, later, '2026-03-01T12:00:00.000Z'))
      const before = await imageOf(database)
      const refused = () => rehearse(database, migrations, quiet())
      await expect(refused()).rejects.toThrow(
        'A later version has applied 9999_later: rehearse with that version or a later one.',
      )
      const list = [...migrations, counting(new Map())]
      await expect(rehearse(database, list, { ...quiet(), ...(await sourcesWith(list)) })).rejects.toThrow(
        'A later version has applied 9999_later',
      )
      expect(await imageOf(database)).toEqual(before)
      expect(await leftOvers(database)).toEqual([])
      const needed = { version: '99.0.0', migration: '9999_later' }
      await storage.write((tx) => raiseOldestVersion(tx as AnyDb, needed))
      await expect(refused()).rejects.toThrow(/needs svc 99\.0\.0 or later since the migration 9999_later/)
      expect(await leftOvers(database)).toEqual([])
    })

    it('that fails, or is interrupted in the middle of a migration, removes its copy', async () => {
      const database = await filled()
      const failing: Migration = {
        name: '9999_failing',
        up: async ({ db }) => {
          await sql`insert into nowhere values (1)`.execute(db)
        },
      }
      const before = await imageOf(database)
      const options = await sourcesWith([failing])
      await expect(rehearse(database, [...migrations, failing], { ...quiet(), ...options })).rejects.toThrow(
        'Migration 9999_failing failed and changed nothing: ',
      )
      expect(await leftOvers(database)).toEqual([])
      const ended = new AbortController()
      const interrupted: Migration = {
        name: '9999_failing',
        up: async ({ db }) => {
          expect(await leftOvers(database)).toHaveLength(1)
          ended.abort()
          // Nothing ends this query but the end of its database.
          if (database.databaseUrl !== undefined) await sql`select pg_sleep(600)`.execute(db)
        },
      }
      const running = rehearse(database, [...migrations, interrupted, { ...failing, name: '9999_later' }], {
        ...quiet(),
        ...(await sourcesWith([interrupted, { ...failing, name: '9999_later' }])),
        signal: ended.signal,
      })
      await expect(running).rejects.toThrow()
      expect(ended.signal.aborted).toBe(true)
      expect(await leftOvers(database)).toEqual([])
      expect(await imageOf(database)).toEqual(before)
    })
  })
})

onEveryEmptyDatabase((kind, open) => {
  describe('svc db rehearse', () => {
    const older = async () => {
      const database = await open()
      await migrate(
        database.storage,
        migrations.filter(({ name }) => name < '0057'),
      )
      const { dataDir, databaseUrl } = database
      const home = new Home({
        SVC_DATA_DIR: dataDir,
        ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
      })
      onTestFinished(() => home.remove())
      return { ...database, home }
    }
    const pending = migrations.map(({ name }) => name).filter((name) => name > '0057')

    it('prints a table, or JSON, and applies nothing', async () => {
      const { home, storage, dataDir, databaseUrl } = await older()
      const table = await home.run(['db', 'rehearse'])
      const need =
        kind === 'sqlite'
          ? ''
          : 'The rehearsal needs about [\\d.]+ MiB of free disk on the Postgres server, as much as the database\n'
      const done =
        'The copy of [\\d.]+ [KM]iB took \\d+\\.\\d s, and the whole rehearsal \\d+\\.\\d s; the copy was removed\n'
      expect([table.code, table.stderr]).toEqual([0, expect.stringMatching(new RegExp(`^${need}${done}$`))])
      const lines = pending.map((name) => `${name} +\\d+\\.\\d s .* (Ki|Mi)?B\\n`).join('')
      expect(table.stdout).toMatch(new RegExp(`^NAME +TOOK +SIZE +ADDED\\n${lines}$`))
      const json = await home.run(['db', 'rehearse', '--json'])
      expect(JSON.parse(json.stdout)).toMatchObject({
        copy: { ms: expect.any(Number), bytes: expect.any(Number) },
        migrations: pending.map((name) => ({ name, ms: expect.any(Number) })),
      })
      expect(await pendingMigrations(storage, migrations)).toEqual(pending)
      expect(await leftOvers({ dataDir, databaseUrl })).toEqual([])
      await migrate(storage, migrations)
      const nothing = await home.run(['db', 'rehearse', '--json'])
      expect(JSON.parse(nothing.stdout)).toMatchObject({ migrations: [] })
    })

    it('removes the copy on Ctrl-C', async () => {
      const { home, dataDir, databaseUrl } = await older()
      // SQLite copies a small database at once: there is no moment to hit.
      if (databaseUrl === undefined) return
      const session = new pg.Client(databaseUrl)
      await session.connect()
      onTestFinished(() => session.end())
      await session.query('begin; lock table devices in access exclusive mode')
      const child = spawn(process.execPath, [binary, 'db', 'rehearse'], { env: home.env, cwd: home.path })
      onTestFinished(() => void child.kill('SIGKILL'))
      let said = ''
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        said += text
      })
      const database = new URL(databaseUrl).pathname.slice(1)
      const isWaiting = async () => {
        const { rowCount } = await administer((client) =>
          client.query(
            `select 1 from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'svc db rehearse' and datname = $1`,
            [database],
          ),
        )
        return rowCount === 1
      }
      await until(isWaiting, 20_000)
      expect(await leftOvers({ dataDir, databaseUrl })).toHaveLength(1)
      const ended = once(child, 'close')
      child.kill('SIGINT')
      expect(await ended).toEqual([130, null])
      expect(said).toMatch(/^The rehearsal needs about .*\nError: Interrupted, and the copy was removed\n$/)
      expect(await leftOvers({ dataDir, databaseUrl })).toEqual([])
    })

    it('says where it has no room or no right', async () => {
      const { home, storage, databaseUrl } = await older()
      if (kind === 'sqlite') {
        const missing = await home.run(['db', 'rehearse', '--scratch', '/nowhere/at/all'])
        expect([missing.code, missing.stderr]).toEqual([
          1,
          'Error: Cannot make a folder in /nowhere/at/all (ENOENT): name another one with --scratch.\n',
        ])
        const scratch = await temporaryFolder()
        expect((await home.run(['db', 'rehearse', '--scratch', scratch])).code).toBe(0)
        expect(readdirSync(scratch)).toEqual([])
        const empty = await temporaryFolder()
        const none = await home.run(['db', 'rehearse', '--data-dir', empty])
        expect(none.stderr).toContain(`There is no database in ${empty}`)
        expect(existsSync(join(empty, 'svc.sqlite'))).toBe(false)
        return
      }
      const flagged = await home.run(['db', 'rehearse', '--scratch', '/tmp'])
      expect(flagged.stderr).toContain('--scratch is for SQLite')
      const url = new URL(databaseUrl!)
      url.username = `poor_${url.pathname.slice(1)}`
      const client = new pg.Client(databaseUrl)
      await client.connect()
      await client.query(`create role ${url.username} login password '${url.password}'`)
      await client.query(`grant pg_read_all_data to ${url.username}`)
      onTestFinished(async () => {
        await administer((it) => it.query(`drop role if exists ${url.username}`)).catch(() => {})
        await client.end()
      })
      const poor = await home.run(['db', 'rehearse'], { env: { DATABASE_URL: url.href } })
      expect(poor.code).toBe(1)
      expect(poor.stderr).toBe(
        `Error: The role ${url.username} may not create the database that the rehearsal needs: ` +
          `run "alter role "${url.username}" createdb" as a superuser, and afterwards "alter role "${url.username}" nocreatedb".\n`,
      )
      await client.query(`revoke pg_read_all_data from ${url.username}`)
      expect(await pendingMigrations(storage, migrations)).toEqual(pending)
    })
  })
})
