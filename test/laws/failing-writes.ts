import { sql } from 'kysely'
import type { Storage } from '../../src/storage/open.ts'
import type { TableName } from '../../src/storage/schema/tables.ts'

let count = 0

/** Makes the database refuse a change of rows that match the condition on `new` (`old` for a deletion). */
export async function failWrites(
  { dialect, write }: Pick<Storage, 'dialect' | 'write'>,
  change: 'insert' | 'update' | 'delete',
  table: TableName,
  condition: string,
): Promise<() => Promise<void>> {
  count += 1
  const name = `poison_${count}`
  const statements =
    dialect === 'sqlite'
      ? [
          `create trigger ${name} before ${change} on ${table} when ${condition}
           begin select raise(abort, 'poisoned'); end`,
        ]
      : [
          `create function ${name}() returns trigger language plpgsql as
           $$ begin raise exception 'poisoned'; end $$`,
          `create trigger ${name} before ${change} on ${table} for each row
           when (${condition}) execute function ${name}()`,
        ]
  await write(async (tx) => {
    for (const statement of statements) await sql.raw(statement).execute(tx)
  })
  const cure = dialect === 'sqlite' ? `drop trigger ${name}` : `drop trigger ${name} on ${table}`
  return async () => {
    await write((tx) => sql.raw(cure).execute(tx))
  }
}
