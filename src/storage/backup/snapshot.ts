import { sql } from 'kysely'
import { SetupError } from '../../core/errors.ts'
import type { AnyDb } from '../columns.ts'
import type { Db, Dialect, Storage } from '../db.ts'
import { openStorage, type StorageOptions } from '../open.ts'
import { listTables, readCounters, type TableShape } from './catalog.ts'
import { assertNoUnfinishedRestore } from './restore-mark.ts'

/** One state of the whole database, whatever is written meanwhile. */
export type Snapshot = {
  source: Dialect
  db: Db
  tables: TableShape[]
  counters: Record<string, number>
  migrations: { name: string; checksum: string }[]
}

/**
 * Runs `work` on a snapshot. On SQLite it is a read transaction of a connection of its own: the write-ahead log cannot
 * start over until it ends. On Postgres it is one repeatable-read transaction.
 * @throws SetupError when there is no database of the service, or a half-restored one
 */
export async function withSnapshot<T>(
  place: Pick<StorageOptions, 'dataDir' | 'databaseUrl'>,
  work: (snapshot: Snapshot) => Promise<T>,
): Promise<T> {
  if (place.databaseUrl === undefined) return withSqliteSnapshot(place.dataDir, work)
  const storage = await openStorage({ ...place, postgres: { poolSize: 2, statementMs: 0 } })
  try {
    return await (storage.read as Db).connection().execute(async (db) => {
      await sql`begin isolation level repeatable read read only`.execute(db)
      try {
        return await work(await snapshotOf(db, 'postgres'))
      } finally {
        // It changed nothing: the end of the connection ends it as well.
        await sql`rollback`.execute(db).catch(() => {})
      }
    })
  } finally {
    await storage.close()
  }
}

async function withSqliteSnapshot<T>(dataDir: string, work: (snapshot: Snapshot) => Promise<T>): Promise<T> {
  const { openWithoutWriting } = await import('../sqlite/copy.ts')
  const { database, read, close } = openWithoutWriting(dataDir)
  try {
    database.exec('begin')
    return await work(await snapshotOf(read, 'sqlite'))
  } finally {
    close()
  }
}

async function snapshotOf(db: Db, source: Dialect): Promise<Snapshot> {
  await assertNoUnfinishedRestore({ dialect: source, read: db } as Pick<Storage, 'dialect' | 'read'>)
  const tables = await listTables(db as AnyDb, source)
  if (!tables.some(({ name }) => name === 'svc_migrations')) {
    throw new SetupError('This database is empty: there is nothing to back up')
  }
  const migrations = await (db as AnyDb)
    .selectFrom('svc_migrations')
    .select(['name', 'checksum'])
    .orderBy('name')
    .execute()
  return { source, db, tables, counters: await readCounters(db as AnyDb, source), migrations }
}
