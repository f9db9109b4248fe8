import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely'
import type { Db } from '../db.ts'
import { byDialect, isWithinDeadline } from '../query/compilers.ts'
import {
  foldedContains,
  foldedHasWord,
  foldedStartsWith,
  keyPrefix,
  keyPrefixLength,
  keyPrefixOfText,
  withoutTrigramIndex,
} from './key-matching.ts'
import { rowsContaining, rowsWithWord } from './trigrams.ts'

/** Where `rankedIds` searches. Columns hold folded text (src/core/fold.ts). */
export type RankedSearch = {
  table: string
  /** The title is the first of these that is not null; with two, the second is searched as well. */
  title: readonly [string] | readonly [string, string]
  /** Searched besides the title. */
  besides?: string
  /** The rows that the caller may see. */
  where: Expression<SqlBool>
  /** Whether those are nearly all rows. */
  whole: boolean
}

const bounds = {
  /** If the caller has at most this many rows, all are read: the time of a search does not depend on other tenants. */
  few: 20_000,
  /** A text in more rows than this is common: reading in title order soon finds a match. */
  rare: 2000,
}
const last = '\u{10ffff}'

/**
 * Ids of the best `limit` rows that contain `needle` (folded, not empty): texts that equal it first, then those that
 * begin with it, then those with a word that does, then the rest; ties by title, then by id.
 */
export async function rankedIds(
  db: Db,
  rows: RankedSearch,
  needle: string,
  limit: number,
  { few, rare } = bounds,
): Promise<string[]> {
  const { ids, count, within, hasWord, atStart, walk } = queriesFor(rows, needle)
  const columns = columnsOf(rows)
  if (!rows.whole && (await count(db, few + 1)) <= few) {
    return ids(db, within(sql`1 = 1`)(limit))
  }
  const holding = await ids(db, rowsContaining(rows.table, columns, needle, rare + 1))
  if (holding.length === 0) return []
  if (holding.length <= rare) return ids(db, within(isAmong(holding))(limit))
  const found = new Set<string>()
  const add = async (tier: Tier) => {
    // Better tiers were exhausted: they hold fewer than `limit`. So this many more are enough.
    for (const id of await ids(db, tier(limit + found.size))) found.add(id)
  }
  const addWords = async () => {
    const begun = await ids(db, rowsWithWord(rows.table, columns, needle, rare + 1))
    if (begun.length > rare) await add(walk.hasWord)
    else if (begun.length > 0) await add(within(sql`${isAmong(begun)} and ${hasWord}`))
  }
  const tiers = [() => add(atStart.equals), () => add(atStart.begins), addWords, () => add(walk.holds)]
  for (const tier of tiers) {
    await tier()
    if (found.size >= limit) break
  }
  return [...found].slice(0, limit)
}

type Test = (key: Expression<string>) => Expression<SqlBool>
type Query = RawBuilder<{ id: string }>
type Tier = (limit: number) => Query

/** In one parameter, so that the statement is the same for any number of ids. */
export const isAmong = (ids: readonly string[]) =>
  byDialect<SqlBool>({
    sqlite: sql`id in (select value from json_each(${JSON.stringify(ids)}))`,
    postgres: sql`id = any(${ids})`,
  })

const columnsOf = ({ title, besides }: RankedSearch): string[] => [...title, ...(besides ? [besides] : [])]

function queriesFor(rows: RankedSearch, needle: string) {
  const { table, title, where } = rows
  const from = sql.table(table)
  const titleKey: Expression<string> =
    title.length === 1 ? sql.ref(title[0]) : sql`coalesce(${sql.ref(title[0])}, ${sql.ref(title[1])})`
  const other = title[1] ?? rows.besides!
  /** Not null where `other` is not the title. */
  const apart = title.length === 1 ? other : title[0]
  const order = sql`${keyPrefix(titleKey)}, id`
  const any = (test: Test) =>
    sql<SqlBool>`(${test(titleKey)} or ${sql.ref(apart)} is not null and ${test(sql.ref(other))})`

  const equals = (key: Expression<string>) => sql<SqlBool>`${key} = ${needle}`
  const begins = (key: Expression<string>) => foldedStartsWith(key, needle)
  const hasWord = any((key) => foldedHasWord(withoutTrigramIndex(key), needle))
  const holds = any((key) => foldedContains(withoutTrigramIndex(key), needle))
  const rank = sql`case when ${any(equals)} then 0 when ${any(begins)} then 1 when ${hasWord} then 2 else 3 end`

  const head = keyPrefixOfText(needle)
  // A needle shorter than a head is decided by the head alone. The text itself is left out then: Postgres would
  // otherwise use its trigrams, and read all rows that contain the needle anywhere.
  const isLong = [...needle].length >= keyPrefixLength
  const also = (test: Test, key: Expression<string>) => (isLong ? sql` and ${test(key)}` : sql``)
  const isHead: Test = (key) => sql<SqlBool>`${keyPrefix(key)} = ${head}${also(equals, key)}`
  const inRange: Test = (key) =>
    sql<SqlBool>`${keyPrefix(key)} >= ${head} and ${keyPrefix(key)} < ${`${head}${last}`}${also(begins, key)}`
  /** Read straight from the indexes of both texts. */
  const atStart =
    (test: Test): Tier =>
    (limit) => {
      const first = (key: Expression<string>, also: Expression<unknown>) =>
        sql`select * from (select id, ${keyPrefix(titleKey)} as head from ${from}
          where ${test(key)} and ${where}${also} order by ${order} limit ${limit}) as part`
      // Titles behind enough other matches cannot be among the first.
      const enough = sql`(select ${keyPrefix(titleKey)} from ${from} where ${test(titleKey)} and ${where}
        order by ${order} limit 1 offset ${limit - 1})`
      const inTime = sql`${keyPrefix(titleKey)} <= coalesce(${enough}, ${last.repeat(keyPrefixLength)})`
      return sql`select id from (
        ${first(titleKey, sql``)} union
        ${first(sql.ref(other), sql` and ${sql.ref(apart)} is not null and ${inTime}`)}
      ) as parts order by head, id limit ${limit}`
    }
  const walk =
    (test: Expression<SqlBool>): Tier =>
    (limit) =>
      sql`select id from ${from} where ${isWithinDeadline} and ${test} and ${where} order by ${order} limit ${limit}`

  return {
    hasWord,
    within:
      (narrowed: Expression<SqlBool>): Tier =>
      (limit) =>
        sql`select id from ${from} where ${isWithinDeadline} and ${narrowed} and ${where} and ${holds}
          order by ${rank}, ${order} limit ${limit}`,
    atStart: { equals: atStart(isHead), begins: atStart(inRange) },
    walk: { hasWord: walk(hasWord), holds: walk(holds) },
    ids: async (db: Db, query: Expression<unknown>) =>
      (await sql<{ id: string }>`${query}`.execute(db)).rows.map(({ id }) => id),
    /** Counts the caller's rows, up to this limit. */
    count: async (db: Db, max: number): Promise<number> => {
      const counted = sql<{ total: number }>`select count(*) as total
        from (select id from ${from} where ${isWithinDeadline} and ${where} limit ${max}) as own`
      return (await counted.execute(db)).rows[0]!.total
    },
  }
}
