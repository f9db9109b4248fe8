import { sql } from 'kysely'
import type { AnyDb } from '../../src/storage/columns.ts'
import type { Db, Storage } from '../../src/storage/open.ts'

/** A small table for tests of the storage. */
export async function createNotes(storage: Storage): Promise<void> {
  await storage.write((tx) =>
    sql`create table notes (id integer primary key, body text not null unique)`.execute(tx),
  )
}

export async function addNote(db: Db, id: number, body = `note ${id}`): Promise<void> {
  await (db as AnyDb).insertInto('notes').values({ id, body }).execute()
}

/** Of all before this one. */
export async function deleteNotes(db: Db, before: number): Promise<void> {
  await (db as AnyDb).deleteFrom('notes').where('id', '<', before).execute()
}

export async function noteIds(db: Db): Promise<number[]> {
  const rows = await (db as AnyDb).selectFrom('notes').select('id').orderBy('id').execute()
  return rows.map((row) => row.id)
}

/** The table that readiness writes, in a database without migrations. */
export async function createProbes(storage: Storage): Promise<void> {
  await storage.write(async (tx) => {
    await sql`create table probes (id integer primary key, at text not null)`.execute(tx)
    await tx.insertInto('probes').values({ id: 1, at: '' }).execute()
  })
}
