import { type Expression, type SqlBool, sql } from 'kysely'
import { isWordBreak, wordBreaks } from '../../core/fold.ts'
import { byDialect } from '../query/compilers.ts'

type Key = string | Expression<string | null>

const textOf = (key: Key): Expression<unknown> => (typeof key === 'string' ? sql.ref(key) : key)

/** Texts are ordered and indexed by their first characters: Postgres cannot index a text of any length. */
export const keyPrefixLength = 64
export const keyPrefix = (key: Key): Expression<string> =>
  sql<string>`substr(${textOf(key)}, 1, ${sql.lit(keyPrefixLength)})`
/** The same for a text that is not in the database. */
export const keyPrefixOfText = (text: string): string => [...text].slice(0, keyPrefixLength).join('')

/**
 * Makes Postgres compare row by row: for a text that its trigrams do not narrow down, it would read the whole index
 * and all rows.
 */
export const withoutTrigramIndex = (key: Key): Expression<string> =>
  byDialect<string>({ sqlite: sql`${textOf(key)}`, postgres: sql`(${textOf(key)} || '')` })

/** Whether a column of folded text contains `needle`, which is folded too. No character is special. */
export function foldedContains(key: Key, needle: string): Expression<SqlBool> {
  return byDialect<SqlBool>({
    sqlite: sql`instr(${textOf(key)}, ${needle}) > 0`,
    postgres: sql`${textOf(key)} like ${`%${needle.replace(/[\\%_]/g, '\\$&')}%`}`,
  })
}

/** Whether it begins with `needle`. */
export function foldedStartsWith(key: Key, needle: string): Expression<SqlBool> {
  return byDialect<SqlBool>({
    sqlite: sql`substr(${textOf(key)}, 1, ${[...needle].length}) = ${needle}`,
    postgres: sql`starts_with(${textOf(key)}, ${needle})`,
  })
}

/** Whether a word other than the first begins with `needle`. */
export function foldedHasWord(key: Key, needle: string): Expression<SqlBool> {
  if (isWordBreak(needle[0]!)) return sql<SqlBool>`1 = 0`
  const text = textOf(key)
  const at = sql`instr(${text}, ${needle})`
  return byDialect<SqlBool>({
    // Searching a text with GLOB takes ten times as long as instr(), so first check what precedes the first
    // occurrence; then whether there is another one at all.
    sqlite: sql`(${at} > 1 and (
      substr(${text}, ${at} - 1, 1) glob ${globBreaks}
      or instr(substr(${text}, ${at} + 1), ${needle}) > 0
      and ${text} glob ${`*${globBreaks}${needle.replace(/[*?[]/g, '[$&]')}*`}
    ))`,
    postgres: sql`${text} ~ ${`${regexBreaks}${needle.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}`}`,
  })
}

const ranges = wordBreaks.map(([first, last]) => `${first}-${last}`).join('')
const globBreaks = `[${ranges}]`
const regexBreaks = `[${ranges.replace('[', '\\[')}]`
