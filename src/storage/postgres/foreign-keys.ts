import pg from 'pg'

const { escapeIdentifier: id } = pg

type Row = { at: string; name: string; definition: string }

const foreignKeys = `
  select t.relname as at, k.conname as name, pg_get_constraintdef(k.oid) as definition
  from pg_constraint k join pg_class t on t.oid = k.conrelid
  where k.contype = 'f' and k.connamespace = current_schema()::regnamespace order by 1, 2`

/**
 * Drops the foreign keys, so that rows go in in any order, and returns the statements that make them again. A session that
 * may switch them off needs more rights than the owner has.
 */
export async function dropForeignKeys(run: (statement: string) => Promise<unknown>): Promise<string[]> {
  const keys = (await run(foreignKeys)) as Row[]
  for (const { at, name } of keys) await run(`alter table ${id(at)} drop constraint ${id(name)}`)
  return keys.map(
    ({ at, name, definition }) => `alter table ${id(at)} add constraint ${id(name)} ${definition}`,
  )
}
