import type { ExpressionBuilder } from 'kysely'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { secondsAfter } from '../../storage/query/expressions.ts'
import type { Tables } from '../../storage/schema/tables.ts'
import { type DueCheckpointsQuery, grownChains, lastCheckpoint } from './claims.ts'
import { restOf } from './verdicts.ts'

/** How many audit chains wait, and since when the first of them does. */
export type Backlog = { count: number; since: Instant | null }

type Judged = { h: Tables['audit_heads']; v: Tables['audit_verdicts'] }

const firstEntry = (eb: ExpressionBuilder<Tables & Judged, 'h' | 'v'>) =>
  eb
    .selectFrom('audit_logs as l')
    .select('l.timestamp')
    .whereRef('l.chain', '=', 'h.chain')
    .orderBy('l.seq')
    .limit(1)

/** Chains with their last finished verdict; a chain without one is as old as its first entry. */
const judged = (db: Db) =>
  db
    .selectFrom('audit_heads as h')
    .leftJoin('audit_verdicts as v', 'v.chain', 'h.chain')
    .where('h.seq', '>', 0)
    .select((eb) => [
      'v.verdict',
      eb.fn.coalesce('v.verified_at', 'v.checked_at', firstEntry(eb as never)).as('at'),
    ])

/** The time of the oldest verdict, and the chains that are due to be verified, by when they became due. */
export async function verificationBacklog(
  db: Db,
  now: Instant,
): Promise<Backlog & { oldest: Instant | null }> {
  const { oldest } = await db
    .selectFrom(judged(db).as('j'))
    .select(({ fn }) => fn.min('at').as('oldest'))
    .executeTakeFirstOrThrow()
  const due = async (rest: number, which: 'none' | 'sound' | 'other') => {
    const found = await db
      .selectFrom(judged(db).as('j'))
      .select(({ fn }) => [fn.countAll<number>().as('count'), fn.min('at').as('at')])
      .where('at', '<=', addSeconds(now, -rest))
      .$if(which === 'none', (q) => q.where('verdict', 'is', null))
      .$if(which === 'sound', (q) => q.where('verdict', '=', 'sound'))
      .$if(which === 'other', (q) => q.where('verdict', '<>', 'sound'))
      .executeTakeFirstOrThrow()
    return { count: found.count, since: found.at === null ? null : addSeconds(found.at, rest) }
  }
  const all = [
    await due(0, 'none'),
    await due(restOf('sound'), 'sound'),
    await due(restOf('tampered'), 'other'),
  ]
  const since = all.flatMap((one) => one.since ?? []).sort()[0] ?? null
  return { count: all.reduce((sum, { count }) => sum + count, 0), since, oldest }
}

/**
 * The chains that are due to be signed, by when they became due: with their first entry that no checkpoint covers, but not
 * before their last checkpoint has rested. `oldest`: the time of the first such entry.
 */
export async function checkpointBacklog(
  db: Db,
  query: DueCheckpointsQuery,
): Promise<Backlog & { oldest: Instant | null }> {
  const unsigned = grownChains(db, query).select((eb) => {
    const last = lastCheckpoint(eb)
    const first = eb
      .selectFrom('audit_logs as l')
      .select('l.timestamp')
      .whereRef('l.chain', '=', 'h.chain')
      .where('l.seq', '>', eb.fn.coalesce(last.select('c.seq'), eb.lit(0)))
      .orderBy('l.seq')
      .limit(1)
    return [
      first.as('at'),
      secondsAfter(eb.fn.coalesce(last.select('c.created_at'), eb.lit(null)), query.restSeconds).as('rested'),
    ]
  })
  const { count, since, oldest } = await db
    .selectFrom(unsigned.as('u'))
    .select(({ fn, eb }) => [
      fn.countAll<number>().as('count'),
      fn.min('at').as('oldest'),
      fn
        .min<Instant | null>(
          eb.case().when('rested', '>', eb.ref('at')).then(eb.ref('rested')).else(eb.ref('at')).end(),
        )
        .as('since'),
    ])
    .executeTakeFirstOrThrow()
  return { count, since, oldest }
}
