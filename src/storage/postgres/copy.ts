import { pipeline } from 'node:stream/promises'
import pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { SetupError } from '../../core/errors.ts'
import { dropForeignKeys } from './foreign-keys.ts'
import { connectFor } from './scratch-database.ts'

const { escapeIdentifier: id } = pg

type Copying = { signal: AbortSignal; onProgress(done: number, total: number): void }

/**
 * Copies all rows as they are at one moment into a database that the same migrations have made, and the indexes of the
 * original in place of theirs. Readers and writers of the original are not blocked.
 */
export async function copyRows(
  sourceUrl: string,
  targetUrl: string,
  { signal, onProgress }: Copying,
): Promise<void> {
  const source = await connectFor('rehearsal', sourceUrl)
  const target = await connectFor('rehearsal', targetUrl)
  // Closes the connection of a query that has not been answered at once, which ends the query.
  const end = () => Promise.allSettled([source.end(), target.end()])
  signal.addEventListener('abort', end)
  try {
    await source.query('begin isolation level repeatable read read only')
    const tables = await columnsByTable(target)
    const existing = await columnsByTable(source)
    const indexes = (await definitions(source, freeIndexes)).filter(({ at }) => tables.has(at))
    // Rows that refer to each other come in any order, and triggers have had their effect already.
    const foreignKeys = await dropForeignKeys(async (statement) => (await target.query(statement)).rows)
    for (const { name } of await definitions(target, freeIndexes))
      await target.query(`drop index ${id(name)}`)
    for (const table of tables.keys()) await target.query(`alter table ${id(table)} disable trigger user`)
    await target.query(`truncate ${[...tables.keys()].map(id).join(', ')}`)
    let done = 0
    for (const [table, columns] of tables) {
      signal.throwIfAborted()
      const lacking = columns.find((column) => !existing.get(table)?.includes(column))
      if (lacking !== undefined)
        throw new SetupError(
          `The database lacks ${table}.${lacking}, which its migrations have made: somebody changed it by hand.`,
        )
      const list = columns.map(id).join(', ')
      await pipeline(
        source.query(copyTo(`copy ${id(table)} (${list}) to stdout`)),
        target.query(copyFrom(`copy ${id(table)} (${list}) from stdin`)),
        { signal },
      )
      done += 1
      onProgress(done, tables.size + indexes.length)
    }
    for (const { definition } of indexes) {
      await target.query(definition)
      done += 1
      onProgress(done, tables.size + indexes.length)
    }
    for (const statement of foreignKeys) await target.query(statement)
    for (const table of tables.keys()) await target.query(`alter table ${id(table)} enable trigger user`)
    await copyCounters(source, target)
    await target.query('analyze')
  } finally {
    signal.removeEventListener('abort', end)
    await end()
  }
}

async function columnsByTable(client: pg.Client): Promise<Map<string, string[]>> {
  const { rows } = await client.query(`
    select c.relname as table, array_agg(a.attname::text order by a.attnum) as columns
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace
      and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    group by c.relname order by c.relname`)
  return new Map(rows.map(({ table, columns }) => [table, columns]))
}

/** Those that belong to no constraint. */
const freeIndexes = `
  select t.relname as at, c.relname as name, pg_get_indexdef(c.oid) as definition
  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
  where c.relnamespace = current_schema()::regnamespace and i.indisvalid
    and not exists (select from pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))`

type Definition = { at: string; name: string; definition: string }

async function definitions(client: pg.Client, query: string): Promise<Definition[]> {
  return (await client.query<Definition>(query)).rows
}

async function copyCounters(source: pg.Client, target: pg.Client): Promise<void> {
  const { rows } = await target.query<{ name: string }>(`
    select relname as name from pg_class where relkind = 'S' and relnamespace = current_schema()::regnamespace`)
  for (const { name } of rows) {
    const { rows: states } = await source.query(`select last_value, is_called from ${id(name)}`)
    const { last_value: value, is_called: called } = states[0]
    await target.query('select setval($1::regclass, $2, $3)', [id(name), value, called])
  }
}
