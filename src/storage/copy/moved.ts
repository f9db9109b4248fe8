import { sql } from 'kysely'
import { listTables } from '../backup/catalog.ts'
import type { AnyDb } from '../columns.ts'
import type { Dialect, Storage } from '../db.ts'
import { hasTable } from '../migration-ledger.ts'

/*
 * A database that was copied elsewhere stays closed for writing: what it accepted would be lost. A row says where it
 * went, and triggers refuse every change, whoever makes it. They are made in the transaction that has kept all others away.
 */

export const moveName = 'svc_moved'

/** Where a database went, without a password, and when. */
export type DatabaseMove = { target: string; at: string }

export const describeMove = ({ target, at }: DatabaseMove): string =>
  `This database was moved to ${target} on ${at}`

export async function readMove(
  storage: Pick<Storage, 'dialect' | 'read'>,
): Promise<DatabaseMove | undefined> {
  if (!(await hasTable(storage, moveName))) return undefined
  const found = await (storage.read as AnyDb).selectFrom(moveName).select(['target', 'at']).executeTakeFirst()
  return found as DatabaseMove | undefined
}

/** Refuses every change of svc's own tables from then on. */
export async function blockWrites(
  db: AnyDb,
  dialect: Dialect,
  move: DatabaseMove,
  isOwn: (table: string) => boolean,
): Promise<void> {
  const names = (await listTables(db, dialect)).map(({ name }) => name).filter(isOwn)
  const message = `${describeMove(move)}, and takes no changes`
  if (dialect === 'postgres') {
    // 25006: read_only_sql_transaction
    await sql`create function ${sql.id(moveName)}() returns trigger language plpgsql as ${sql.lit(
      `begin raise exception using errcode = '25006', message = '${message.replaceAll("'", "''")}'; end`,
    )}`.execute(db)
  }
  for (const name of names) {
    for (const trigger of triggersOf(dialect, name)) {
      await (dialect === 'postgres'
        ? sql`create trigger ${sql.id(trigger.name)} before insert or update or delete or truncate
            on ${sql.table(name)} execute function ${sql.id(moveName)}()`
        : sql`create trigger ${sql.id(trigger.name)} before ${sql.raw(trigger.change)} on ${sql.table(name)}
            begin select raise(abort, ${sql.lit(message)}); end`
      ).execute(db)
    }
  }
  await sql`create table ${sql.id(moveName)} (target text not null, at text not null)`.execute(db)
  await db.insertInto(moveName).values(move).execute()
}

/** Accepts changes again. */
export async function unblockWrites(db: AnyDb, { dialect }: Pick<Storage, 'dialect'>): Promise<void> {
  await sql`drop table ${sql.id(moveName)}`.execute(db)
  if (dialect === 'postgres') return void (await sql`drop function ${sql.id(moveName)}() cascade`.execute(db))
  const { rows } = await sql<{ name: string }>`
    select name from sqlite_schema where type = 'trigger' and name like ${`${moveName}\\_%`} escape '\\'`.execute(
    db,
  )
  for (const { name } of rows) await sql`drop trigger ${sql.id(name)}`.execute(db)
}

const triggersOf = (dialect: Dialect, table: string): { name: string; change: string }[] =>
  dialect === 'postgres'
    ? [{ name: moveName, change: '' }]
    : ['insert', 'update', 'delete'].map((change) => ({ name: `${moveName}_${change}_${table}`, change }))
