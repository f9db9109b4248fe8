import { type Expression, type SqlBool, sql } from 'kysely'
import { idsFrom } from '../../core/ids.ts'
import type { Instant } from '../../core/time.ts'
import { byDialect } from './compilers.ts'

/* Expressions that read the same on both databases. */

/** The column equals this text, written as a literal, as in a partial index: a parameter would not match the index. */
export const equalsText = (column: string, text: string): Expression<SqlBool> =>
  sql<SqlBool>`${sql.ref(column)} = ${sql.lit(text)}`

/** The column is one of these texts, written the same way. */
export const amongTexts = (column: string, texts: readonly string[]): Expression<SqlBool> =>
  sql<SqlBool>`${sql.ref(column)} in (${sql.join(texts.map((text) => sql.lit(text)))})`

/** The column differs from this text, written the same way. */
export const notEqualsText = (column: string, text: string): Expression<SqlBool> =>
  sql<SqlBool>`${sql.ref(column)} <> ${sql.lit(text)}`

/** The column equals this hash, where only the beginning of hashes is indexed. */
export const isHash = (column: string, hash: string): Expression<SqlBool> =>
  sql<SqlBool>`substr(${sql.ref(column)}, 1, 8) = ${hash.slice(0, 8)} and ${sql.ref(column)} = ${hash}`

/** The instant so many seconds after another one. */
export function secondsAfter<T extends Instant | null>(at: Expression<T>, seconds: number) {
  return byDialect<T>({
    sqlite: sql`strftime('%Y-%m-%dT%H:%M:%fZ', ${at}, ${`${seconds} seconds`})`,
    postgres: sql`to_char(
      ${at}::timestamptz at time zone 'UTC' + make_interval(secs => ${seconds}), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`,
  })
}

/** The column holds an id that begins so. Ids are ordered by bytes, so an index over the column seeks to them. */
export function idStartsWith(column: string, start: string): Expression<SqlBool> {
  const { first, last } = idsFrom(start)
  return sql<SqlBool>`${sql.ref(column)} between ${first} and ${last}`
}

/**
 * Rows after a key in a list ordered by these columns, for a keyset cursor. Both databases seek straight to it in an
 * index over the columns.
 */
export function after(
  columns: readonly string[],
  key: readonly (string | number | Expression<unknown>)[],
  order: 'asc' | 'desc' = 'asc',
): Expression<SqlBool> {
  const row = sql.join(columns.map((column) => sql.ref(column)))
  const compared = order === 'asc' ? sql`>` : sql`<`
  return sql<SqlBool>`(${row}) ${compared} (${sql.join(key)})`
}

/**
 * Whether the text contains `needle`, ignoring letter case. Both are compared folded; no character is special. Every
 * text contains an empty needle; null contains none.
 */
export function contains(column: string | Expression<string | null>, needle: string): Expression<SqlBool> {
  const value = sql`cast(${needle} as text)`
  return byDialect<SqlBool>({
    sqlite: sql`instr(${foldedInSqlite(textOf(column))}, ${foldedInSqlite(value)}) > 0`,
    postgres: sql`strpos(${foldedInPostgres(textOf(column))}, ${foldedInPostgres(value)}) > 0`,
  })
}

/** The same for a column that holds only ASCII, which the database folds itself: several times as fast. */
export function plainContains(column: string, needle: string): Expression<SqlBool> {
  const value = sql`cast(${needle} as text)`
  return byDialect<SqlBool>({
    sqlite: sql`instr(lower(${sql.ref(column)}), ${foldedInSqlite(value)}) > 0`,
    postgres: sql`strpos(lower(${sql.ref(column)}), ${foldedInPostgres(value)}) > 0`,
  })
}

type Owned = { table: string; by: string; of: string }

/** A column of the rows that belong to one row, sorted, as a JSON list of texts. */
export function textsOf({ table, by, of }: Owned, column: string) {
  const value = sql.ref(column)
  const from = ownedRows({ table, by, of })
  return byDialect<string>({
    // Ordered in the subquery, where an index can supply the order: an order in the aggregate itself would sort for
    // each row.
    sqlite: sql`(select json_group_array(${value}) from (select ${value} ${from} order by ${value}))`,
    postgres: sql`(select coalesce(json_agg(${value} order by ${value}), '[]')::text ${from})`,
  })
}

/** Two columns of the rows that belong to one row, as a JSON object of texts. */
export function pairsOf(owned: Owned, key: string, value: string) {
  const [name, text, from] = [sql.ref(key), sql.ref(value), ownedRows(owned)]
  return byDialect<string>({
    sqlite: sql`(select json_group_object(${name}, ${text}) from (select ${name}, ${text} ${from} order by ${name}))`,
    postgres: sql`(select coalesce(json_object_agg(${name}, ${text} order by ${name}), '{}')::text ${from})`,
  })
}

const ownedRows = ({ table, by, of }: Owned) =>
  sql`from ${sql.table(table)} where ${sql.ref(`${table}.${by}`)} = ${sql.ref(of)}`

/**
 * A field of an object stored as RFC 8785 text, as JSON text; `next` is the field that follows. An attacker may have
 * changed the stored text: for any other text the result is null or arbitrary, but never an error. Quotes within
 * strings are escaped, so a quoted name outside a string is the name of the field.
 */
export function jsonField(column: string, field: string, next: string): Expression<string | null> {
  const text = sql.ref(column)
  return byDialect<string | null>({
    sqlite: sql`(case when json_valid(${text}) then ${text} -> ${`$.${field}`} end)`,
    postgres: sql`substring(${text} from cast(${`"${field}":(.*),"${next}":`} as text))`,
  })
}

/**
 * A column folded for case-insensitive search (`fold` in fold.ts), for ranking and equality. The two databases differ
 * only where their Unicode versions do: for letters a few years old.
 */
export function foldCase(column: string | Expression<string | null>): Expression<string> {
  return byDialect<string>({
    sqlite: foldedInSqlite(textOf(column)),
    postgres: foldedInPostgres(textOf(column)),
  })
}

function textOf(column: string | Expression<string | null>): Expression<unknown> {
  return typeof column === 'string' ? sql.ref(column) : column
}

function foldedInSqlite(text: Expression<unknown>) {
  return sql<string>`fold(${text})`
}

function foldedInPostgres(text: Expression<unknown>) {
  return sql<string>`replace(lower(normalize(${text}, nfkc) collate "und-x-icu"), 'ς', 'σ')`
}

/** Bytes of the texts in these columns of a row, plus `more`. */
export const bytesOf = (columns: readonly string[], more: number) =>
  sql<number>`(${sql.lit(more)} + ${sql.join(
    columns.map((column) => sql`coalesce(octet_length(${sql.ref(column)}), 0)`),
    sql` + `,
  )})`

/** The sum over all rows; 0 without any. */
export const sumOf = (amount: Expression<number>) => sql<number>`cast(coalesce(sum(${amount}), 0) as bigint)`
