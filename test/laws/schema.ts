import { sql } from 'kysely'
import type { Storage } from '../../src/storage/open.ts'

type Column = { name: string; kind: string; nullable: boolean }

/** Keys by their columns; generated names are ignored. */
export type Table = {
  columns: Column[]
  primaryKey: string[]
  unique: string[]
  /** `name: columns or an expression [unique] [where …]` */
  indexes: string[]
  /** `columns -> table(columns) on delete …` */
  foreignKeys: string[]
}

/** The tables according to the database catalog, in a format common to both databases. */
export async function schemaOf(storage: Storage): Promise<Record<string, Table>> {
  const tables = await (storage.dialect === 'sqlite' ? ofSqlite(storage) : ofPostgres(storage))
  return Object.fromEntries(
    Object.entries(tables)
      .filter(([name]) => !ofSearch.test(name))
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, table]) => [
        name,
        {
          columns: [...table.columns].sort((a, b) => (a.name < b.name ? -1 : 1)),
          primaryKey: table.primaryKey,
          unique: [...table.unique].sort(),
          indexes: table.indexes.filter((index) => !ofSearch.test(index)).sort(),
          foreignKeys: [...table.foreignKeys].sort(),
        },
      ]),
  )
}

/** Search indexes, which are specific to each database. */
const ofSearch = /_trigrams(_|:|$)|_search:/

const rowsOf = async <T>(storage: Storage, text: string): Promise<T[]> =>
  (await sql.raw<T>(text).execute(storage.read)).rows

const kinds: Record<string, string> = {
  text: 'text',
  integer: 'integer',
  bigint: 'integer',
  real: 'real',
  'double precision': 'real',
}

/** Conditions without quotes, brackets and case. */
const plain = (condition: string | undefined): string =>
  condition === undefined
    ? ''
    : ` where ${condition
        .toLowerCase()
        .replace(/["()]|::text/g, '')
        .replace(/= any array\[(.*)\]/, 'in $1')
        .trim()}`

async function ofSqlite(storage: Storage): Promise<Record<string, Table>> {
  const names = await rowsOf<{ name: string }>(
    storage,
    `select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'`,
  )
  const tables: Record<string, Table> = {}
  for (const { name } of names) {
    const columns = await rowsOf<{ name: string; type: string; notnull: number; pk: number }>(
      storage,
      `select name, type, "notnull", pk from pragma_table_xinfo('${name}')`,
    )
    const keys = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk)
    const indexes = await rowsOf<{ name: string; origin: string; unique: number; sql: string | null }>(
      storage,
      `select l.name, l.origin, l."unique", s.sql from pragma_index_list('${name}') l
       left join sqlite_schema s on s.name = l.name and s.type = 'index'`,
    )
    const columnsOf = async (index: string) =>
      (
        await rowsOf<{ name: string | null }>(
          storage,
          `select name from pragma_index_info('${index}') order by seqno`,
        )
      )
        .map((column) => column.name)
        .join(', ')
    const made = indexes.filter(({ origin }) => origin === 'c')
    const foreign = await rowsOf<{ id: number; from: string; table: string; to: string; on_delete: string }>(
      storage,
      `select id, "from", "table", "to", on_delete from pragma_foreign_key_list('${name}')`,
    )
    tables[name] = {
      columns: columns.map((column) => ({
        name: column.name,
        kind: kinds[column.type.toLowerCase()] ?? column.type,
        nullable: column.notnull === 0 && column.pk === 0,
      })),
      primaryKey: keys.map((column) => column.name),
      unique: await Promise.all(
        indexes.filter(({ origin }) => origin === 'u').map((index) => columnsOf(index.name)),
      ),
      indexes: await Promise.all(
        made.map(async (index) => {
          const where = plain(/\swhere\s(.*)$/is.exec(index.sql ?? '')?.[1])
          const columns = (await columnsOf(index.name)) || /" \((.*)\)/s.exec(index.sql ?? '')?.[1]
          return `${index.name}: ${columns}${index.unique ? ' unique' : ''}${where}`
        }),
      ),
      foreignKeys: foreign.map((it) => foreignKey(it.from, it.table, it.to, it.on_delete)),
    }
  }
  return tables
}

const foreignKey = (from: string, table: string, to: string, onDelete: string): string =>
  `${from} -> ${table}(${to}) on delete ${onDelete.toLowerCase()}`

async function ofPostgres(storage: Storage): Promise<Record<string, Table>> {
  const columns = await rowsOf<{
    table: string
    name: string
    type: string
    nullable: string
    collation: string | null
  }>(
    storage,
    `select table_name as table, column_name as name, data_type as type, is_nullable as nullable,
       collation_name as collation
     from information_schema.columns where table_schema = current_schema() order by ordinal_position`,
  )
  const keys = await rowsOf<{ table: string; type: string; columns: string }>(
    storage,
    `select c.conrelid::regclass::text as table, c.contype as type, (
       select string_agg(a.attname, ', ' order by k.at)
       from unnest(c.conkey) with ordinality as k(attnum, at)
       join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.attnum
     ) as columns
     from pg_constraint c where c.connamespace = current_schema()::regnamespace and c.contype in ('p', 'u')`,
  )
  const indexes = await rowsOf<{
    table: string
    name: string
    unique: boolean
    columns: string
    where: string | null
  }>(
    storage,
    `select i.indrelid::regclass::text as table, i.indexrelid::regclass::text as name, i.indisunique as unique, (
       select string_agg(coalesce(a.attname, pg_get_indexdef(i.indexrelid, k.at::int, false)), ', ' order by k.at)
       from unnest(i.indkey::int2[]) with ordinality as k(attnum, at)
       left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
     ) as columns, pg_get_expr(i.indpred, i.indrelid) as where
     from pg_index i join pg_class c on c.oid = i.indexrelid
     where c.relnamespace = current_schema()::regnamespace
       and not exists (select 1 from pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u'))`,
  )
  const foreign = await rowsOf<{ table: string; from: string; target: string; to: string; action: string }>(
    storage,
    `select c.conrelid::regclass::text as table, a.attname as from, c.confrelid::regclass::text as target,
       b.attname as to, case c.confdeltype when 'c' then 'cascade' when 'n' then 'set null'
         when 'r' then 'restrict' else 'no action' end as action
     from pg_constraint c
     join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
     join pg_attribute b on b.attrelid = c.confrelid and b.attnum = c.confkey[1]
     where c.connamespace = current_schema()::regnamespace and c.contype = 'f'`,
  )
  const of = <T extends { table: string }>(rows: T[], table: string) =>
    rows.filter((row) => row.table === table)
  return Object.fromEntries(
    [...new Set(columns.map((column) => column.table))].map((table) => [
      table,
      {
        columns: of(columns, table).map(({ name, type, nullable }) => ({
          name,
          kind: kinds[type] ?? type,
          nullable: nullable === 'YES',
        })),
        primaryKey: of(keys, table)
          .filter(({ type }) => type === 'p')
          .flatMap((key) => key.columns.split(', ')),
        unique: of(keys, table)
          .filter(({ type }) => type === 'u')
          .map((key) => key.columns),
        indexes: of(indexes, table).map((index) => {
          const where = plain(index.where ?? undefined)
          return `${index.name}: ${index.columns}${index.unique ? ' unique' : ''}${where}`
        }),
        foreignKeys: of(foreign, table).map((it) => foreignKey(it.from, it.target, it.to, it.action)),
      },
    ]),
  )
}

/** Text columns that do not compare by bytes, on Postgres. The migrations table is only looked up. */
export async function uncollated(storage: Storage): Promise<string[]> {
  const rows = await rowsOf<{ at: string }>(
    storage,
    `select table_name || '.' || column_name as at from information_schema.columns
     where table_schema = current_schema() and table_name <> 'svc_migrations' and data_type = 'text' and collation_name is distinct from 'C'`,
  )
  return rows.map(({ at }) => at)
}
