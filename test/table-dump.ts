import { type Kysely, sql } from 'kysely'
import pg from 'pg'
import type { Storage } from '../src/storage/open.ts'
import { runIn } from './postgres-databases.ts'

/** Rows by table. */
export type Rows = Map<string, Record<string, unknown>[]>

type Place = { storage: Storage; databaseUrl?: string | undefined }

type AnyDb = Kysely<Record<string, Record<string, unknown>>>

/** Whether one of these tables has a row. */
export async function holdsAny({ read }: Storage, tables: readonly string[]): Promise<boolean> {
  for (const table of tables) {
    const row = await (read as AnyDb).selectFrom(table).selectAll().limit(1).executeTakeFirst()
    if (row) return true
  }
  return false
}

/** What the tables of a database hold. */
export async function rowsOf({ read }: Storage): Promise<Rows> {
  const tables = (await read.introspection.getTables()).filter(
    // A lease is of the process that holds it.
    ({ name }) => !['svc_migrations', 'leases'].includes(name) && !/_trigrams/.test(name),
  )
  const rows: Rows = new Map()
  for (const { name } of tables) rows.set(name, await (read as AnyDb).selectFrom(name).selectAll().execute())
  return rows
}

/** What came since. */
export function added(before: Rows, after: Rows): Rows {
  const rows: Rows = new Map()
  for (const [table, all] of after) {
    const known = new Set(before.get(table)?.map((row) => JSON.stringify(row)))
    const fresh = all.filter((row) => !known.has(JSON.stringify(row)))
    if (fresh.length > 0) rows.set(table, fresh)
  }
  return rows
}

/** Puts rows that refer to each other into a database, in any order. */
export async function putRows({ storage, databaseUrl }: Place, rows: Rows): Promise<void> {
  if (databaseUrl !== undefined) return void (await runIn(databaseUrl, insertion(rows)))
  await storage.write(async (tx) => {
    await sql`pragma defer_foreign_keys = on`.execute(tx)
    for (const [table, all] of rows) await (tx as unknown as AnyDb).insertInto(table).values(all).execute()
  })
}

const insertions = new WeakMap<Rows, string>()

/** One query for all tables of Postgres, where each would take a millisecond or two. */
function insertion(rows: Rows): string {
  let text = insertions.get(rows)
  if (text === undefined) {
    const each = [...rows].map(([table, all]) => {
      const values = pg.escapeLiteral(JSON.stringify(all, bytesAsHex))
      return `insert into ${table} select * from json_populate_recordset(null::${table}, ${values});`
    })
    text = `begin; set local session_replication_role = replica; ${each.join('\n')} commit`
    insertions.set(rows, text)
  }
  return text
}

const bytesAsHex = (_: string, value: unknown) =>
  isBytes(value) ? `\\x${Buffer.from(value.data).toString('hex')}` : value

/** What `Buffer.toJSON` gives. */
const isBytes = (value: unknown): value is { data: number[] } =>
  typeof value === 'object' && value !== null && 'type' in value && value.type === 'Buffer'
