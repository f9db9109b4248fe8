import { sql } from 'kysely'
import type { AnyDb } from '../columns.ts'
import type { Dialect, ReadStorage } from '../db.ts'

type ColumnShape = { name: string; kind: 'text' | 'number'; nullable: boolean }

/** A table as both databases describe it: columns by name, and those of the primary key in their order. */
export type TableShape = { name: string; columns: ColumnShape[]; key: string[] }

type Row = { table: string; name: string; type: string; nullable: number; place: number | null }

/** The tables of the database, by name. */
export async function listTables(db: AnyDb, dialect: Dialect): Promise<TableShape[]> {
  const { rows } = await (dialect === 'sqlite' ? ofSqlite : ofPostgres).execute(db)
  const tables = Map.groupBy(rows, ({ table }) => table)
  return [...tables.keys()].sort(byBytes).map((name) => shapeOf(name, tables.get(name)!))
}

export const tablesOf = ({ read, dialect }: Pick<ReadStorage, 'read' | 'dialect'>): Promise<TableShape[]> =>
  listTables(read as AnyDb, dialect)

function shapeOf(name: string, rows: readonly Row[]): TableShape {
  const columns = rows
    .map((row): ColumnShape => {
      const kind = row.type === 'text' ? 'text' : 'number'
      return { name: row.name, kind, nullable: row.nullable === 1 }
    })
    .sort((a, b) => byBytes(a.name, b.name))
  const key = rows
    .filter((row): row is Row & { place: number } => row.place !== null && row.place > 0)
    .sort((a, b) => a.place - b.place)
    .map((row) => row.name)
  return { name, columns, key }
}

const byBytes = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/** `pk` is the place in the primary key, from 1; 0: not in it. A primary key of SQLite accepts null, ours never have it. */
const ofSqlite = sql<Row>`
  select s.name as "table", c.name as name, lower(c.type) as type, c.pk as place,
    case when c."notnull" = 1 or c.pk > 0 then 0 else 1 end as nullable
  from sqlite_schema as s join pragma_table_info(s.name) as c
  where s.type = 'table' and s.name not like 'sqlite\_%' escape '\\'`

const ofPostgres = sql<Row>`
  select t.relname as "table", c.attname as name, format_type(c.atttypid, null) as type,
    case when c.attnotnull then 0 else 1 end as nullable,
    array_position(i.indkey::int2[], c.attnum) + 1 as place
  from pg_class as t
  join pg_attribute as c on c.attrelid = t.oid and c.attnum > 0 and not c.attisdropped
  left join pg_index as i on i.indrelid = t.oid and i.indisprimary
  where t.relkind in ('r', 'p') and t.relnamespace = current_schema()::regnamespace`

/** The last number that each counter of a table gave out; numbers are never used twice. */
export async function readCounters(
  db: AnyDb,
  dialect: Dialect,
  isOwn = (_: string) => true,
): Promise<Record<string, number>> {
  if (dialect === 'sqlite') {
    const { rows } = await sql<{ name: string; seq: number }>`
      select name, seq from sqlite_sequence where seq > 0`.execute(db)
    return Object.fromEntries(
      rows.filter((row) => isCounter(row) && isOwn(row.name)).map(({ name, seq }) => [name, seq]),
    )
  }
  const counters: Record<string, number> = {}
  for (const { name, sequence } of await listSequences(db)) {
    if (!isOwn(name)) continue
    const { rows } = await sql<{ last: number }>`
      select case when is_called then last_value else 0 end as last from ${sql.raw(sequence)}`.execute(db)
    if (rows[0]!.last > 0) counters[name] = rows[0]!.last
  }
  return counters
}

/** Those of search indexes count rows of an index, which is made anew. */
const isCounter = ({ name }: { name: string }): boolean => !name.includes('_trigrams')

export async function setCounters(
  db: AnyDb,
  dialect: Dialect,
  counters: Readonly<Record<string, number>>,
): Promise<void> {
  if (dialect === 'sqlite') {
    for (const [name, last] of Object.entries(counters)) {
      await sql`delete from sqlite_sequence where name = ${name}`.execute(db)
      await sql`insert into sqlite_sequence (name, seq) values (${name}, ${last})`.execute(db)
    }
    return
  }
  for (const { name, sequence } of await listSequences(db)) {
    const last = counters[name]
    if (last !== undefined) await sql`select setval(${sequence}::regclass, ${last})`.execute(db)
  }
}

async function listSequences(db: AnyDb): Promise<{ name: string; sequence: string }[]> {
  const { rows } = await sql<{ name: string; sequence: string }>`
    select t.relname as name, pg_get_serial_sequence(quote_ident(t.relname), c.attname) as sequence
    from pg_class as t
    join pg_attribute as c on c.attrelid = t.oid and c.attidentity <> ''
    where t.relkind = 'r' and t.relnamespace = current_schema()::regnamespace
    order by 1`.execute(db)
  return rows
}
