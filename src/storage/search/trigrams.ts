import { type Expression, type Kysely, type RawBuilder, type SqlBool, sql } from 'kysely'
import { isWordBreak, wordBreaks } from '../../core/fold.ts'
import { byDialect } from '../query/compilers.ts'
import { foldedContains, foldedHasWord, withoutTrigramIndex } from './key-matching.ts'

// biome-ignore lint/suspicious/noExplicitAny: a migration does not know the tables of its future
type AnyDb = Kysely<any>

/**
 * Postgres keeps trigrams in indexes. SQLite keeps them in a full-text table beside the rows: triggers follow every
 * insert, delete and change of these columns, and `…_trigrams_rows` gives each row a stable number, since VACUUM may
 * change the rowids of a table with a text key. Texts are not stored a second time.
 */
export async function sqliteTrigrams(db: AnyDb, table: string, columns: readonly string[]): Promise<void> {
  const { index, rows } = namesOf(table)
  const [own, its] = [sql.table(table), sql.join(columns.map((column) => sql.id(column)))]
  const fresh = sql.join(columns.map((column) => sql`new.${sql.id(column)}`))
  const rowOf = (id: RawBuilder<unknown>) => sql`(select row from ${sql.id(rows)} where id = ${id})`
  const trigger = (name: string, when: RawBuilder<unknown>, body: RawBuilder<unknown>) =>
    sql`create trigger ${sql.id(`${index}_${name}`)} after ${when} begin ${body}; end`.execute(db)

  await sql`create table ${sql.id(rows)} (row integer primary key, id text not null unique)`.execute(db)
  await sql`create virtual table ${sql.id(index)} using fts5 (
    ${its}, tokenize = 'trigram case_sensitive 1', detail = none, content = '', contentless_delete = 1
  )`.execute(db)
  await sql`insert into ${sql.id(rows)} (id) select id from ${own}`.execute(db)
  await sql`insert into ${sql.id(index)} (rowid, ${its})
    select row, ${its} from ${sql.id(rows)} join ${own} using (id)`.execute(db)

  await trigger(
    'insert',
    sql`insert on ${own}`,
    sql`insert into ${sql.id(rows)} (id) values (new.id);
      insert into ${sql.id(index)} (rowid, ${its}) values (${rowOf(sql`new.id`)}, ${fresh})`,
  )
  const differs = columns.map((column) => sql`old.${sql.id(column)} is not new.${sql.id(column)}`)
  const assigned = columns.map((column) => sql`${sql.id(column)} = new.${sql.id(column)}`)
  await trigger(
    'update',
    sql`update of ${its} on ${own} when ${sql.join(differs, sql` or `)}`,
    sql`update ${sql.id(index)} set ${sql.join(assigned)} where rowid = ${rowOf(sql`new.id`)}`,
  )
  await trigger(
    'delete',
    sql`delete on ${own}`,
    sql`delete from ${sql.id(index)} where rowid = ${rowOf(sql`old.id`)};
      delete from ${sql.id(rows)} where id = old.id`,
  )
}

export async function postgresTrigrams(db: AnyDb, table: string, columns: readonly string[]): Promise<void> {
  await sql`create extension if not exists pg_trgm`.execute(db)
  for (const column of columns) {
    await sql`create index ${sql.id(`${table}_${column}_trigrams`)} on ${sql.table(table)}
      using gin (${sql.id(column)} gin_trgm_ops)`.execute(db)
  }
}

const namesOf = (table: string) => ({ index: `${table}_trigrams`, rows: `${table}_trigrams_rows` })

/** More trigrams would hardly rule out another row. */
const maxTrigrams = 24

/**
 * Ids of at most `limit` rows that may contain `needle`, which is folded, in one of these columns; if there are
 * fewer, every row that does is among them. The index cannot answer for one or two characters.
 */
export function rowsContaining(table: string, columns: readonly string[], needle: string, limit: number) {
  const holding = (key: (column: string) => Expression<string>) =>
    rowsWhere(
      table,
      columns.map((column) => foldedContains(key(column), needle)),
      limit,
    )
  if ([...needle].length < 3) return holding(withoutTrigramIndex)
  return byDialect<string>({
    sqlite: rowsMatching(table, trigramsOf(needle), limit),
    postgres: holding((column) => sql.ref<string>(column)),
  })
}

/**
 * The same for a word that begins with `needle`, after another word. SQLite's index cannot answer for one character.
 */
export function rowsWithWord(
  table: string,
  columns: readonly string[],
  needle: string,
  limit: number,
): Expression<string> {
  const [first, second] = needle
  const words = rowsWhere(
    table,
    columns.map((column) => foldedHasWord(column, needle)),
    limit,
  )
  if (second === undefined || isWordBreak(first!)) return words
  const begun = breaks.map((it) => quoted(`${it}${first}${second}`)).join(' OR ')
  return byDialect<string>({
    sqlite: rowsMatching(table, [`(${begun})`, ...trigramsOf(needle)], limit),
    postgres: words,
  })
}

/** A word break and the two characters behind it are a trigram: so the index finds where words begin. */
const breaks = wordBreaks.flatMap(([first, last]) => {
  const [from, to] = [first!.charCodeAt(0), last!.charCodeAt(0)]
  return Array.from({ length: to - from + 1 }, (_, n) => String.fromCharCode(from + n))
})

const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`

function trigramsOf(needle: string): string[] {
  const letters = [...needle]
  const trigrams = new Set(letters.slice(2).map((_, i) => letters.slice(i, i + 3).join('')))
  return [...trigrams].slice(0, maxTrigrams).map(quoted)
}

function rowsMatching(table: string, terms: readonly string[], limit: number) {
  const { index, rows } = namesOf(table)
  return sql<string>`select held.id from ${sql.id(index)} join ${sql.id(rows)} as held on held.row = ${sql.id(index)}.rowid
    where ${sql.id(index)} match ${terms.join(' AND ')} limit ${limit}`
}

const rowsWhere = (table: string, any: readonly Expression<SqlBool>[], limit: number) =>
  sql<string>`select held.id from ${sql.table(table)} as held where ${sql.join(any, sql` or `)} limit ${limit}`
