import { type Expression, type SqlBool, sql } from 'kysely'
import { wordBreaks } from '../core/fold.ts'
import { byDialect } from './compilers.ts'

type Key = string | Expression<string | null>

const textOf = (key: Key): Expression<unknown> => (typeof key === 'string' ? sql.ref(key) : key)

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
  return byDialect<SqlBool>({
    // GLOB takes ten times as long as instr().
    sqlite: sql`(instr(${textOf(key)}, ${needle}) > 1 and ${textOf(key)} glob ${`*${globBreaks}${needle.replace(/[*?[]/g, '[$&]')}*`})`,
    postgres: sql`${textOf(key)} ~ ${`${regexBreaks}${needle.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}`}`,
  })
}

const ranges = wordBreaks.map(([first, last]) => `${first}-${last}`).join('')
const globBreaks = `[${ranges}]`
const regexBreaks = `[${ranges.replace('[', '\\[')}]`
