import { sql } from 'kysely'
import pg from 'pg'
import { SetupError } from '../../core/errors.ts'
import { advisoryLocks } from '../advisory-locks.ts'
import { createMark, markName } from '../backup/restore-mark.ts'
import type { RowLoader, TargetDriver, TargetState } from '../backup/target-driver.ts'
import type { AnyDb } from '../columns.ts'
import type { Db } from '../db.ts'
import { acquireMigrationLock, releaseMigrationLock } from '../migration-lock.ts'
import { openStorage } from '../open.ts'
import { dropForeignKeys } from './foreign-keys.ts'

export function postgresRestore(databaseUrl: string): TargetDriver {
  const connected = async <T>(work: (db: AnyDb) => Promise<T>): Promise<T> => {
    const storage = await openStorage({
      dataDir: '',
      databaseUrl,
      postgres: { poolSize: 2, statementMs: 0 },
    })
    try {
      return await (storage.read as Db).connection().execute((db) => work(db as AnyDb))
    } finally {
      await storage.close()
    }
  }
  return {
    state: () => connected(stateOf),
    lock: () => lockDatabase(databaseUrl),
    begin: () =>
      connected(async (db) => {
        // A service that starts meanwhile makes its tables before the mark, or finds the mark.
        await acquireMigrationLock(db, () => {})
        try {
          const state = await stateOf(db)
          if (state === 'used') return state
          await createMark(db)
          await dropLeftovers(db)
          return state
        } finally {
          await releaseMigrationLock(db)
        }
      }),
    load: (work, droppedConstraints) =>
      connected(async (db) => {
        const run = async (statement: string) => (await sql.raw(statement).execute(db)).rows
        const takeOff = async () => {
          const statements = [
            ...(await dropForeignKeys(run)),
            ...(droppedConstraints ? await disableTriggers(run) : []),
          ]
          await droppedConstraints?.keep(db, statements)
          return statements
        }
        const back = (await droppedConstraints?.read(db)) ?? (await transaction(db, takeOff))
        return work(loaderOf(db, back))
      }),
  }
}

async function stateOf(db: AnyDb): Promise<TargetState> {
  const names = await listNames(db)
  if (names.length === 0) return 'empty'
  return names.includes(markName) ? 'unfinished' : 'used'
}

/** Held by a connection of its own, so that it ends with the process. */
async function lockDatabase(databaseUrl: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'svc' })
  // The restore notices a lost connection by itself.
  client.on('error', () => {})
  await client.connect()
  const { rows } = await client.query('select pg_try_advisory_lock($1, $2) as locked', [
    ...advisoryLocks.restore,
  ])
  if (rows[0].locked) return () => client.end()
  await client.end()
  throw new SetupError(
    'Another svc db restore or svc db copy works on this database: wait for it to end, or end its process if it hangs.',
  )
}

async function listNames(db: AnyDb): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select relname as name from pg_class
    where relkind in ('r', 'p', 'v', 'm') and relnamespace = current_schema()::regnamespace
      and not exists (select 1 from pg_depend where objid = pg_class.oid and deptype = 'e')`.execute(db)
  return rows.map(({ name }) => name)
}

/** What an unfinished restore left: the mark says that there was nothing before it. */
async function dropLeftovers(db: AnyDb): Promise<void> {
  for (const name of await listNames(db)) {
    if (name !== markName) await sql`drop table if exists ${sql.id(name)} cascade`.execute(db)
  }
  const { rows } = await sql<{ signature: string }>`
    select oid::regprocedure::text as signature from pg_proc
    where pronamespace = current_schema()::regnamespace and prorettype = 'trigger'::regtype
      and not exists (select 1 from pg_depend where objid = pg_proc.oid and deptype = 'e')`.execute(db)
  for (const { signature } of rows) await sql`drop function ${sql.raw(signature)}`.execute(db)
}

/** Triggers that refuse changes: a row of the source may be read again, and be gone by then. */
async function disableTriggers(run: (statement: string) => Promise<unknown>): Promise<string[]> {
  const rows = (await run(`
    select distinct quote_ident(t.relname) as at from pg_trigger g join pg_class t on t.oid = g.tgrelid
    where not g.tgisinternal and t.relnamespace = current_schema()::regnamespace`)) as { at: string }[]
  for (const { at } of rows) await run(`alter table ${at} disable trigger user`)
  return rows.map(({ at }) => `alter table ${at} enable trigger user`)
}

async function transaction<T>(db: AnyDb, work: () => Promise<T>): Promise<T> {
  await sql`begin`.execute(db)
  try {
    const result = await work()
    await sql`commit`.execute(db)
    return result
  } catch (error) {
    // On a lost connection nothing is left to roll back, and the reason is what matters.
    await sql`rollback`.execute(db).catch(() => {})
    throw error
  }
}

function loaderOf(db: AnyDb, back: readonly string[]): RowLoader {
  return {
    db,
    transaction: (work) => transaction(db, work),
    async insert({ name, columns }, rows) {
      const names = columns.map((column) => column.name)
      const records = rows.map((row) => Object.fromEntries(names.map((column, at) => [column, row[at]])))
      const list = sql.join(names.map((column) => sql.id(column)))
      await sql`insert into ${sql.id(name)} (${list})
        select ${list} from json_populate_recordset(null::${sql.id(name)}, ${JSON.stringify(records)}::json)`.execute(
        db,
      )
    },
    async end() {
      for (const statement of back) await sql.raw(statement).execute(db)
      await sql`analyze`.execute(db)
    },
  }
}
