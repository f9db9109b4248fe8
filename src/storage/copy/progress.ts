import { sql } from 'kysely'
import { copyMarkName } from '../backup/restore-mark.ts'
import type { Cell } from '../backup/row-pages.ts'
import type { DroppedConstraints } from '../backup/target-driver.ts'
import type { AnyDb } from '../columns.ts'

/*
 * How far a copy is, in tables of the target: a chunk is recorded in the transaction that writes its rows, so a copy that was
 * killed anywhere goes on behind the last one. Chunks of a table follow each other by primary key without a gap: each
 * reaches from the one before it to its own last key.
 */

const chunksName = 'svc_copy_chunks'

export type Chunk = {
  /** From 0, in the order of the keys. */
  place: number
  last: Cell[]
  rows: number
  /** SHA-256 of its rows as lines of a backup; `unwritten`: the target has none of them. */
  digest: string
}

export const unwritten = ''

export async function createProgress(db: AnyDb, source: string, since: string): Promise<void> {
  await sql`create table ${sql.id(copyMarkName)} (source text not null, since text not null, taken_off text)`.execute(
    db,
  )
  await sql`create table ${sql.id(chunksName)} (
    table_name text not null, place integer not null, last text not null, rows integer not null, digest text not null,
    primary key (table_name, place)
  )`.execute(db)
  await db.insertInto(copyMarkName).values({ source, since, taken_off: null }).execute()
}

export async function dropProgress(db: AnyDb): Promise<void> {
  for (const name of [chunksName, copyMarkName]) await sql`drop table ${sql.id(name)}`.execute(db)
}

/** Of which database the copy is, and when it began. */
export const readOrigin = async (db: AnyDb): Promise<{ source: string; since: string }> =>
  (await db.selectFrom(copyMarkName).select(['source', 'since']).executeTakeFirstOrThrow()) as {
    source: string
    since: string
  }

export async function readChunks(db: AnyDb, table: string): Promise<Chunk[]> {
  const rows = await db
    .selectFrom(chunksName)
    .select(['place', 'last', 'rows', 'digest'])
    .where('table_name', '=', table)
    .orderBy('place')
    .execute()
  return rows.map(({ place, last, rows, digest }) => ({
    place: Number(place),
    last: JSON.parse(String(last)) as Cell[],
    rows: Number(rows),
    digest: String(digest),
  }))
}

export async function recordChunk(
  db: AnyDb,
  table: string,
  { place, last, rows, digest }: Chunk,
): Promise<void> {
  const values = { last: JSON.stringify(last), rows, digest }
  await db
    .insertInto(chunksName)
    .values({ table_name: table, place, ...values })
    .onConflict((it) => it.columns(['table_name', 'place']).doUpdateSet(values))
    .execute()
}

/** Rows that the target has, of one table or of all. */
export async function countCopied(db: AnyDb, table?: string): Promise<number> {
  const { rows } = await sql<{ total: number }>`
    select coalesce(sum(rows), 0) as total from ${sql.id(chunksName)} where digest <> ${unwritten}
      ${table === undefined ? sql`` : sql`and table_name = ${table}`}`.execute(db)
  return Number(rows[0]!.total)
}

/** What the load has taken off the target, from one process to the next. */
export const droppedConstraints: DroppedConstraints = {
  async read(db) {
    const { taken_off } = await db.selectFrom(copyMarkName).select('taken_off').executeTakeFirstOrThrow()
    return taken_off === null ? undefined : JSON.parse(String(taken_off))
  },
  async keep(db, statements) {
    await db
      .updateTable(copyMarkName)
      .set({ taken_off: JSON.stringify(statements) })
      .execute()
  },
}
