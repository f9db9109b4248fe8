import { type Kysely, sql } from 'kysely'
import type { Storage } from '../src/storage/open.ts'

/** Rows by table. */
export type Rows = Map<string, Record<string, unknown>[]>

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
    ({ name }) => name !== 'svc_migrations' && !/_trigrams/.test(name),
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
export async function putRows({ dialect, write }: Storage, rows: Rows): Promise<void> {
  await write(async (tx) => {
    const later =
      dialect === 'sqlite'
        ? sql`pragma defer_foreign_keys = on`
        : sql`set local session_replication_role = replica`
    await later.execute(tx)
    for (const [table, all] of rows) await (tx as unknown as AnyDb).insertInto(table).values(all).execute()
  })
}
