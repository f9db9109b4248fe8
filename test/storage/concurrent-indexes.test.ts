import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { migrate, pendingMigrations } from '../../src/storage/migrate.ts'
import { breakMigrationLock } from '../../src/storage/migration-lock.ts'
import type { MigrationWait } from '../../src/storage/migration-wait.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { until } from '../daemon/process.ts'
import { onEveryEmptyDatabase, openEmpty } from '../databases.ts'
import { indexed, table } from './indexed-table.ts'
import { sourcesWith } from './migration-files.ts'

/** Whether each index of the table is valid. */
async function validity({ read }: Storage): Promise<Record<string, number>> {
  const { rows } = await sql<{ name: string; valid: number }>`
    select indexrelid::regclass::text as name, indisvalid as valid from pg_index
    where indrelid = 'parts'::regclass order by 1`.execute(read)
  return Object.fromEntries(rows.map(({ name, valid }) => [name, valid]))
}

onEveryEmptyDatabase((kind, open) => {
  describe('a migration of indexes', () => {
    it('builds each one, with its condition and order, and is recorded', async () => {
      const { storage } = await open()
      const list = [table, indexed]
      const options = await sourcesWith(list)
      expect(await migrate(storage, list, options)).toEqual(['0001_table', '0002_indexed'])
      const { rows } = await (kind === 'sqlite'
        ? sql<{
            sql: string
          }>`select sql from sqlite_schema where type = 'index' and sql is not null order by name`
        : sql<{
            sql: string
          }>`select pg_get_indexdef(indexrelid) as sql from pg_index where indrelid = 'parts'::regclass and not indisprimary order by 1`
      ).execute(storage.read)
      const text = rows.map((row) => row.sql.toLowerCase().replaceAll(/["()]|public\.|using btree /g, ''))
      expect(text).toEqual([
        'create index parts_by_size on parts size desc, id where size > 0',
        'create unique index parts_names on parts name',
      ])
      expect(await pendingMigrations(storage, list, options)).toEqual([])
    })

    it('that is not unique after all is named, and leaves no index that refuses rows', async () => {
      const { storage } = await open()
      const list = [table, indexed]
      const options = await sourcesWith(list)
      await migrate(storage, [table], options)
      const add = (id: string) =>
        storage.write((tx) => sql`insert into parts (id, name, size) values (${id}, 'same', 1)`.execute(tx))
      await add('a')
      await add('b')
      const outcome =
        kind === 'sqlite' ? 'failed and changed nothing' : 'failed and kept the indexes that were done'
      await expect(migrate(storage, list, options)).rejects.toThrow(`Migration 0002_indexed ${outcome}: `)
      expect(await pendingMigrations(storage, list, options)).toEqual(['0002_indexed'])
      await add('c')
      await storage.write((tx) => sql`update parts set name = id`.execute(tx))
      expect(await migrate(storage, list, options)).toEqual(['0002_indexed'])
      await expect(storage.write((tx) => sql`update parts set name = 'same'`.execute(tx))).rejects.toThrow()
    })
  })
})

describe('an index that Postgres builds concurrently', () => {
  const begun = async () => {
    const { storage, databaseUrl = '', dataDir } = await openEmpty('postgres')
    const list = [table, indexed]
    const options = await sourcesWith(list)
    await migrate(storage, [table], options)
    const writer = new pg.Client({ connectionString: databaseUrl, application_name: 'a slow writer' })
    await writer.connect()
    onTestFinished(() => writer.end())
    // The build waits for everybody who may write what it has not seen.
    await writer.query('begin')
    await writer.query(`insert into parts (id, name, size) values ('slow', 'slow', 1)`)
    const add = (id: string) =>
      storage.write((tx) => sql`insert into parts (id, name, size) values (${id}, ${id}, 1)`.execute(tx), {
        lockMs: 1000,
      })
    return { storage, databaseUrl, dataDir, list, options, writer, add }
  }

  it('lets others write while it waits for a transaction, which it names, and lets another process wait', async () => {
    const { storage, databaseUrl, dataDir, list, options, writer, add } = await begun()
    const second = await openStorage({ dataDir, databaseUrl })
    onTestFinished(() => second.close())
    const waits: MigrationWait[] = []
    const migrating = migrate(storage, list, {
      ...options,
      locks: { sliceMs: 400 },
      onWait: (wait) => waits.push(wait),
    })
    await until(() => waits.length > 0, 20_000)
    // With a statement that waits for the lock of migrations, each would wait for the other.
    const others: MigrationWait[] = []
    const waiting = migrate(second, list, { ...options, onWait: (wait) => others.push(wait) })
    await until(() => others.length > 0, 20_000)
    await add('while it is built')
    expect(waits).toMatchObject([{ migration: '0002_indexed', blockers: [{ application: 'a slow writer' }] }])
    expect(await validity(storage)).toMatchObject({ parts_names: 0 })
    await writer.query('commit')
    expect(await migrating).toEqual(['0002_indexed'])
    expect(await waiting).toEqual([])
    expect(await validity(storage)).toEqual({ parts_pkey: 1, parts_by_size: 1, parts_names: 1 })
    await expect(add('slow')).rejects.toThrow('duplicate key')
  })

  it.each(['kill -9', 'svc db unlock'])('is dropped and built again after %s in the middle', async (how) => {
    const { storage, databaseUrl, dataDir, list, options, writer, add } = await begun()
    const program = fileURLToPath(new URL('./indexing-process.ts', import.meta.url))
    const child = fork(program, [options.folder.href, dataDir, databaseUrl], { execArgv: [], silent: true })
    onTestFinished(() => void child.kill('SIGKILL'))
    const ended = once(child, 'exit')
    const isInvalid = async () => (await validity(storage)).parts_names === 0
    await until(isInvalid, 20_000)
    if (how === 'kill -9') child.kill('SIGKILL')
    else expect(await breakMigrationLock(storage)).toBe(1)
    await ended
    // Of a killed client the server learns within two seconds, although the transaction that it waits for goes on.
    await until(async () => (await heldLocks(storage)) === 0, 20_000)
    expect(await validity(storage)).toMatchObject({ parts_names: 0 })
    await add('after the kill')
    await writer.query('commit')
    expect(await migrate(storage, list, options)).toEqual(['0002_indexed'])
    expect(await validity(storage)).toEqual({ parts_pkey: 1, parts_by_size: 1, parts_names: 1 })
  })
})

async function heldLocks({ read }: Storage): Promise<number> {
  const { rows } = await sql<{ n: number }>`select count(*) as n from pg_locks where locktype = 'advisory'
    and database = (select oid from pg_database where datname = current_database())`.execute(read)
  return rows[0]!.n
}
