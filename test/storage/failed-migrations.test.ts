import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import { describe, expect, it, onTestFinished } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { type Migration, migrate, pendingMigrations } from '../../src/storage/migrate.ts'
import type { Storage } from '../../src/storage/open.ts'
import { Home } from '../cli/run.ts'
import { failedStart } from '../daemon/process.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { schemaOf } from '../laws/schema.ts'
import { rowsOf } from '../table-dump.ts'
import { changing, first, middle } from './changing-migration.ts'
import { sourcesWith } from './migration-files.ts'

/** Everything that a migration could leave behind. */
async function contentsOf(storage: Storage) {
  const { rows: triggers } = await (storage.dialect === 'sqlite'
    ? sql`select name, sql from sqlite_schema order by name`
    : sql`select tgname as name, pg_get_triggerdef(oid) as sql from pg_trigger where not tgisinternal order by 1`
  ).execute(storage.read)
  const { rows: ledger } = await sql`select * from svc_migrations`.execute(storage.read)
  return { schema: await schemaOf(storage), triggers, rows: [...(await rowsOf(storage))], ledger }
}

onEveryEmptyDatabase((_kind, open) => {
  describe('a migration that changes tables, rows, indexes and triggers', () => {
    const begun = async () => {
      const database = await open()
      const list = [first, changing]
      const options = await sourcesWith(list)
      await migrate(database.storage, [first], options)
      return { ...database, list, options, before: await contentsOf(database.storage) }
    }

    it('leaves the database as it was when its last statement fails, and is named with the reason', async () => {
      const { storage, list, options, before } = await begun()
      const failing: Migration = {
        name: changing.name,
        oldestVersion: '9.0.0',
        up: async (schema) => {
          await changing.up!(schema)
          await sql`insert into parts (id) values ('a')`.execute(schema.db)
        },
      }
      const reason =
        storage.dialect === 'sqlite' ? 'UNIQUE constraint failed: parts.id' : 'duplicate key value'
      const error = await migrate(storage, [first, failing], options).catch((it: Error) => it)
      expect(error).toMatchObject({ name: 'SetupError', cause: expect.any(Error) })
      expect((error as Error).message).toMatch(
        new RegExp(`^Migration 0002_changing failed and changed nothing: ${reason}[^\\n]*$`),
      )
      expect(await contentsOf(storage)).toEqual(before)
      expect(await migrate(storage, list, options)).toEqual(['0002_changing'])
      expect(await contentsOf(storage)).not.toEqual(before)
    })

    it('leaves it as it was when its process is killed in the middle', async () => {
      const { storage, list, options, before, dataDir, databaseUrl } = await begun()
      const program = fileURLToPath(new URL('./migrating-process.ts', import.meta.url))
      const child = fork(program, [options.folder.href, dataDir, ...(databaseUrl ? [databaseUrl] : [])], {
        execArgv: [],
      })
      onTestFinished(() => void child.kill('SIGKILL'))
      expect(await once(child, 'message')).toContain(middle)
      const ended = once(child, 'exit')
      child.kill('SIGKILL')
      expect(await ended).toEqual([null, 'SIGKILL'])
      expect(await pendingMigrations(storage, list, options)).toEqual(['0002_changing'])
      // Postgres ends the connection of a killed process a moment later, and whoever migrates next waits for that.
      expect(await migrate(storage, [first], options)).toEqual([])
      expect(await contentsOf(storage)).toEqual(before)
      expect(await migrate(storage, list, options)).toEqual(['0002_changing'])
      const { rows } = await sql`select id, size from parts order by id`.execute(storage.read as AnyDb)
      expect(rows).toEqual([
        { id: 'a', size: 2 },
        { id: 'b', size: 2 },
      ])
    })
  })

  it('one that fails stops svc db migrate and svc serve with one sentence, and SVC_DEBUG adds the stack', async () => {
    const { storage, dataDir, databaseUrl } = await open()
    const before = migrations.filter(({ name }) => name < '0058')
    await migrate(storage, before)
    // Somebody has built the index by hand.
    await storage.write((tx) => sql`create index alerts_ended on alerts (org_id)`.execute(tx))
    await storage.close()
    const home = new Home({
      SVC_DATA_DIR: dataDir,
      ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
    })
    onTestFinished(() => home.remove())
    const said =
      /^Error: Migration 0058_ended_alerts failed and changed nothing: [^\n]*alerts_ended[^\n]* already exists\n$/
    const plain = await home.run(['db', 'migrate'])
    expect([plain.code, plain.stdout]).toEqual([1, ''])
    expect(plain.stderr).toMatch(said)
    const debug = await home.run(['db', 'migrate'], { env: { SVC_DEBUG: '1' } })
    expect(debug.stderr).toMatch(
      /^Caused by: [^\n]*already exists[\s\S]*\n +at [\s\S]*\nError: Migration 0058_ended_alerts failed/,
    )
    const { code, stderr } = await failedStart({ dataDir, databaseUrl })
    expect(code).toBe(1)
    expect(stderr.replace('svc serve:', 'Error:')).toMatch(said)
    const status = await home.run(['db', 'status', '--jq', '.data[-1].state'])
    expect(status.stdout).toBe('pending\n')
  })
})
