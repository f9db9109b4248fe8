import { type Expression, type SqlBool, sql } from 'kysely'
import { fold } from '../../core/fold.ts'
import { toPostgresPattern } from '../patterns/re2-for-postgres.ts'
import { byDialect } from '../query/compilers.ts'
import { foldCase } from '../query/expressions.ts'
import { foldedContains, keyPrefix, keyPrefixOfText } from './key-matching.ts'

/** A column of text, and the one with its folded form, if any. */
export type TextColumn = { column: string; key?: string | undefined }

/** The compared expression and the needle, both folded; no character is special. */
function sides({ column, key }: TextColumn, needle: string) {
  if (key !== undefined) return { text: sql.ref(key), wanted: sql<string>`cast(${fold(needle)} as text)` }
  return { text: foldCase(column), wanted: foldCase(sql<string>`cast(${needle} as text)`) }
}

/** Whether the text contains `needle`, ignoring letter case. */
export function textContains(column: TextColumn, needle: string): Expression<SqlBool> {
  // A column that holds folded text may have an index of trigrams.
  if (column.key !== undefined) return foldedContains(column.key, fold(needle))
  const { text, wanted } = sides(column, needle)
  return byDialect<SqlBool>({
    sqlite: sql`instr(${text}, ${wanted}) > 0`,
    postgres: sql`strpos(${text}, ${wanted}) > 0`,
  })
}

/** Whether it begins with `needle`, ignoring letter case. */
export function startsWith(column: TextColumn, needle: string): Expression<SqlBool> {
  const { text, wanted } = sides(column, needle)
  return sql<SqlBool>`substr(${text}, 1, length(${wanted})) = ${wanted}`
}

/** Whether it ends with `needle`, ignoring letter case. A start before the text yields less than the needle. */
export function endsWith(column: TextColumn, needle: string): Expression<SqlBool> {
  const { text, wanted } = sides(column, needle)
  return sql<SqlBool>`substr(${text}, length(${text}) - length(${wanted}) + 1) = ${wanted}`
}

/** Whether the pattern, in RE2 syntax, matches anywhere in the text. In time linear in its length on SQLite. */
export function matchesPattern(column: string, pattern: string): Expression<SqlBool> {
  return byDialect<SqlBool>({
    sqlite: sql`re2(${pattern}, ${sql.ref(column)}) = 1`,
    postgres: sql`${sql.ref(column)} ~ cast(${toPostgresPattern(pattern)} as text)`,
  })
}

/**
 * Whether the text equals one of these. Compared row by row: for a device with few rows SQLite would look up each of
 * the texts in the index, one after the other.
 */
export function isInUnindexed(column: string, texts: readonly string[]): Expression<SqlBool> {
  if (texts.length === 0) return sql<SqlBool>`1 = 0`
  const list = sql.join(texts)
  return byDialect<SqlBool>({
    sqlite: sql`+${sql.ref(column)} in (${list})`,
    postgres: sql`${sql.ref(column)} in (${list})`,
  })
}

/** Texts that JSON writes unchanged, without a character that could be taken for a separator of texts. */
const plain = /^[^",\\\p{C}]+$/u

/**
 * Whether the JSON list of a column holds some of these texts, or all. On SQLite the list's text is searched; `rows`,
 * a condition on the table that lists them row by row, serves texts that JSON escapes, and Postgres.
 */
export function jsonArrayContains(
  column: string,
  which: 'some' | 'all',
  texts: readonly string[],
  rows: Expression<SqlBool>,
): Expression<SqlBool> {
  if (texts.length === 0 || texts.length > 8 || !texts.every((text) => plain.test(text))) return rows
  const list = sql.ref(column)
  const tests = texts.map((text) => {
    const [first, later] = [`["${text}"`, `,"${text}"`]
    return sql`(instr(${list}, ${first}) > 0 or instr(${list}, ${later}) > 0)`
  })
  return byDialect<SqlBool>({
    sqlite: sql`(${sql.join(tests, which === 'some' ? sql` or ` : sql` and `)})`,
    postgres: sql`${rows}`,
  })
}

/** Whether the text equals one of these. Searches by the heads of the folded texts, which are indexed. */
export function isInByPrefix(
  { column, key }: { column: string; key: string },
  texts: readonly string[],
): Expression<SqlBool> {
  const heads = texts.map((text) => keyPrefixOfText(fold(text)))
  return sql<SqlBool>`(${keyPrefix(key)} in (${sql.join(heads)}) and ${sql.ref(column)} in (${sql.join(texts)}))`
}

/** A number that Postgres does not convert to the type of the compared column. */
export const doubleLiteral = (value: number): Expression<number> =>
  sql<number>`cast(${value} as double precision)`
