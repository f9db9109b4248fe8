import { type Expression, type SqlBool, sql } from 'kysely'
import { isWordBreak, wordBreaks } from '../../core/fold.ts'
import { byDialect } from '../query/compilers.ts'

type Key = string | Expression<string | null>

const textOf = (key: Key): Expression<unknown> => (typeof key === 'string' ? sql.ref(key) : key)

/** Texts are ordered and indexed by their first letters: Postgres cannot index a text of any length. */
export const keyPrefixLength = 64
export const keyPrefix = (key: Key): Expression<string> =>
  sql<string>`substr(${textOf(key)}, 1, ${sql.lit(keyPrefixLength)})`
/** The same of a text that is not in the database. */
export const keyPrefixOfText = (text: string): string => [...text].slice(0, keyPrefixLength).join('')

/** For Postgres to compare row by row: of what its trigrams do not tell apart it reads the whole index and all rows. */
export const withoutTrigramIndex = (key: Key): Expression<string> =>
  byDialect<string>({ sqlite: sql`${textOf(key)}`, postgres: sql`(${textOf(key)} || '')` })

/** Does a column of folded text hold `needle`, which is folded as well? No character is special. */
export function containsKey(key: Key, needle: string): Expression<SqlBool> {
  return byDialect<SqlBool>({
    sqlite: sql`instr(${textOf(key)}, ${needle}) > 0`,
    postgres: sql`${textOf(key)} like ${`%${needle.replace(/[\\%_]/g, '\\$&')}%`}`,
  })
}

/** Does it begin with `needle`? */
export function startsWithKey(key: Key, needle: string): Expression<SqlBool> {
  return byDialect<SqlBool>({
    sqlite: sql`substr(${textOf(key)}, 1, ${[...needle].length}) = ${needle}`,
    postgres: sql`starts_with(${textOf(key)}, ${needle})`,
  })
}

/** Does a word of it that is not the first begin with `needle`? */
export function hasWordKey(key: Key, needle: string): Expression<SqlBool> {
  if (isWordBreak(needle[0]!)) return sql<SqlBool>`1 = 0`
  const text = textOf(key)
  const at = sql`instr(${text}, ${needle})`
  return byDialect<SqlBool>({
    // To look through a text with GLOB takes ten times as long as instr(), so first what stands before the needle
    // where it is first; then whether there is another at all.
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
