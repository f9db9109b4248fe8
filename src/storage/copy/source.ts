import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { SetupError } from '../../core/errors.ts'
import { listTables, readCounters, type TableShape } from '../backup/catalog.ts'
import type { DatabaseLocation } from '../backup/restore-target.ts'
import type { AnyDb } from '../columns.ts'
import type { Db, Dialect } from '../db.ts'
import { openStorage } from '../open.ts'
import { setConnectionTimeouts } from '../postgres/connection-timeouts.ts'
import { blockWrites, type DatabaseMove } from './moved.ts'
import { copyLockKey, gatePollMs } from './write-gate.ts'

/** In which the services see that writes are refused, and finish those that they have begun. */
const drainMs = 4 * gatePollMs
const attempts = 5
const aliveMs = 10_000

export type CopySource = {
  dialect: Dialect
  read: Db
  /** Of the whole database, by name. */
  tables(): Promise<TableShape[]>
  bytes(): Promise<number>
  close(): Promise<void>
}

/** What says which schema it has. */
export type SourceSchema = Pick<CopySource, 'dialect' | 'read' | 'tables'>

/** Opens the database that is copied for reading, beside the service that writes to it. */
export async function openSource(place: DatabaseLocation): Promise<CopySource> {
  if (place.databaseUrl === undefined) {
    const { openWithoutWriting } = await import('../sqlite/copy.ts')
    const { read, bytes, close } = openWithoutWriting(place.dataDir)
    const tables = () => listTables(read as AnyDb, 'sqlite')
    return { dialect: 'sqlite', read, tables, bytes: async () => bytes(), close: async () => void close() }
  }
  const storage = await openStorage({ ...place, postgres: { poolSize: 2, statementMs: 0 } })
  const { dialect, read, close } = storage
  const tables = () => listTables(read as AnyDb, dialect)
  return { dialect, read, tables, bytes: async () => (await storage.sizes()).data, close }
}

/** @throws SetupError when the last step would fail for want of a right, after all rows were copied */
export async function assertMayClose({ dialect, read }: CopySource, isOwn: IsOwn): Promise<void> {
  if (dialect === 'sqlite') return
  const { rows } = await sql<{ name: string }>`
    select relname as name from pg_class where relkind in ('r', 'p')
      and relnamespace = current_schema()::regnamespace and not pg_has_role(relowner, 'usage')
    order by 1`.execute(read)
  const foreign = rows.find(({ name }) => isOwn(name))
  if (foreign) {
    throw new SetupError(
      `The role of DATABASE_URL does not own the table ${foreign.name}, and cannot close it for writing: copy with the role that owns it.`,
    )
  }
  const may = await sql<{ may: number }>`
    select case when has_schema_privilege(current_schema(), 'create') then 1 else 0 end as may`.execute(read)
  if (may.rows[0]!.may === 1) return
  throw new SetupError(
    'The role of DATABASE_URL may not create tables in its schema, and cannot close it for writing: grant it CREATE on the schema.',
  )
}

/** A source that nobody else writes to. */
export type ClosedSource = {
  tx: Db
  /** What it is now: another process may have changed it since it was opened. */
  source: SourceSchema
  counters(): Promise<Record<string, number>>
  /** Closes it for good; without a move it is closed already. Commits, and lets others go on. */
  end(move: DatabaseMove | undefined): Promise<void>
}

/** Whether svc made a table: others may share the schema with it. */
type IsOwn = (table: string) => boolean

type ClosedWork<T> = (source: ClosedSource) => Promise<T>

const closedOf = (tx: Db, dialect: Dialect, isOwn: IsOwn, commit: () => Promise<unknown>): ClosedSource => ({
  tx,
  source: { dialect, read: tx, tables: () => listTables(tx as AnyDb, dialect) },
  counters: () => readCounters(tx as AnyDb, dialect, isOwn),
  async end(move) {
    if (move) await blockWrites(tx as AnyDb, dialect, move, isOwn)
    await commit()
  },
})

/**
 * Keeps all writes away while `work` runs, in one transaction, which it may use to write: services are asked to refuse them,
 * and the locks of the database refuse the rest. All of them end with this process. What `work` changed stays if it has called
 * `end`, which lets the others go on.
 */
export const withClosedSource = <T>(
  place: DatabaseLocation,
  isOwn: IsOwn,
  work: ClosedWork<T>,
): Promise<T> =>
  place.databaseUrl === undefined
    ? withClosedSqlite(place.dataDir, isOwn, work)
    : withClosedPostgres(place, isOwn, work)

async function withClosedSqlite<T>(dataDir: string, isOwn: IsOwn, work: ClosedWork<T>): Promise<T> {
  const { openWriter, sqliteFile } = await import('../sqlite/file.ts')
  const { SqliteConnection } = await import('../sqlite/connection.ts')
  const { kyselyOver } = await import('../sqlite/kysely.ts')
  const { lockForCopy } = await import('../sqlite/copy-lock.ts')
  const unlock = lockForCopy(dataDir)
  try {
    await sleep(drainMs)
    const database = openWriter(sqliteFile(dataDir))
    try {
      // Whoever sees that it was moved must see it after a power failure too.
      database.pragma('synchronous = full')
      database.exec('begin immediate')
      const tx = kyselyOver(new SqliteConnection(database))
      return await work(closedOf(tx, 'sqlite', isOwn, async () => database.exec('commit')))
    } finally {
      if (database.inTransaction) database.exec('rollback')
      database.close()
    }
  } finally {
    unlock()
  }
}

async function withClosedPostgres<T>(place: DatabaseLocation, isOwn: IsOwn, work: ClosedWork<T>): Promise<T> {
  const storage = await openStorage({ ...place, postgres: { poolSize: 2, statementMs: 0 } })
  try {
    return await (storage.read as Db).connection().execute(async (db) => {
      const [space, key] = copyLockKey.map((one) => sql.lit(one))
      await setConnectionTimeouts(db as AnyDb)
      await sql`select pg_advisory_lock(${space}, ${key})`.execute(db)
      // The target may be busy for longer than a session may be idle.
      const alive = setInterval(() => void sql`select 1`.execute(db).catch(() => {}), aliveMs)
      try {
        await sleep(drainMs)
        await beginAlone(db, isOwn)
        return await work(closedOf(db, 'postgres', isOwn, () => sql`commit`.execute(db)))
      } finally {
        clearInterval(alive)
        // The end of the connection, which follows, ends the transaction and the lock as well.
        await sql`rollback`.execute(db).catch(() => {})
        // A lost connection has no lock.
        await sql`select pg_advisory_unlock(${space}, ${key})`.execute(db).catch(() => {})
      }
    })
  } finally {
    await storage.close()
  }
}

/** A transaction that was begun before may hold some of the tables, and wait for others. */
async function beginAlone(db: Db, isOwn: IsOwn): Promise<void> {
  const tables = (await listTables(db as AnyDb, 'postgres')).filter(({ name }) => isOwn(name))
  const names = sql.join(tables.map(({ name }) => sql.id(name)))
  for (let attempt = 1; ; attempt++) {
    await sql`begin`.execute(db)
    await sql`set local lock_timeout = '20s'`.execute(db)
    try {
      // Readers are let in.
      return void (await sql`lock table ${names} in exclusive mode`.execute(db))
    } catch (error) {
      await sql`rollback`.execute(db)
      if (attempt === attempts) throw error
    }
  }
}
