import type { ExpressionBuilder } from 'kysely'
import { addSeconds, clockSkew, type Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { Tables } from '../../storage/schema/tables.ts'

/** How long a process may take to sign the chains that it claimed at once; after a failure it is the pause. */
const claimSeconds = 120
/** Longest pause of a chain that contradicts what was signed of it. */
const longestClaimSeconds = 3600

export type DueCheckpointsQuery = {
  now: Instant
  /** Seconds from one checkpoint of a chain to its next one. */
  restSeconds: number
}

/** The times that count as past. Those too far in the future are outside, so that a forged one blocks nothing. */
const plausibleRange = (since: Instant, now: Instant, ahead: number) =>
  [since, addSeconds(now, ahead + clockSkew)] as const

/** The last checkpoint of the chain `h`. */
export const lastCheckpoint = (eb: ExpressionBuilder<Tables & { h: Tables['audit_heads'] }, 'h'>) =>
  eb
    .selectFrom('audit_checkpoints as c')
    .whereRef('c.chain', '=', 'h.chain')
    .orderBy('c.seq', 'desc')
    .limit(1)

/** The chains with entries that no checkpoint covers, if the last one is old enough. */
export const grownChains = (db: Db, { now, restSeconds }: DueCheckpointsQuery) =>
  db
    .selectFrom('audit_heads as h')
    .where('h.seq', '>', 0)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('audit_checkpoints as c')
            .select('c.seq')
            .whereRef('c.chain', '=', 'h.chain')
            .whereRef('c.seq', '>=', 'h.seq'),
        ),
      ),
    )
    .where((eb) => {
      const last = lastCheckpoint(eb).select('c.created_at')
      const [since, latest] = plausibleRange(addSeconds(now, -restSeconds), now, 0)
      return eb.or([
        eb(eb.fn.coalesce(last, eb.val('')), '<=', since),
        eb(eb.fn.coalesce(last, eb.val('')), '>', latest),
      ])
    })

/** Grown chains that no process is signing, those that could not be signed last. */
export async function listUnsignedChains(
  db: Db,
  { limit, ...query }: DueCheckpointsQuery & { limit: number },
): Promise<string[]> {
  const [since, latest] = plausibleRange(query.now, query.now, longestClaimSeconds)
  const rows = await grownChains(db, query)
    .leftJoin('audit_checkpoint_claims as k', 'k.chain', 'h.chain')
    .select('h.chain')
    .where((eb) =>
      eb.or([
        eb('k.claimed_until', 'is', null),
        eb('k.claimed_until', '<=', since),
        eb('k.claimed_until', '>', latest),
      ]),
    )
    .orderBy((eb) => eb.fn.coalesce('k.claimed_until', eb.val('')))
    .orderBy('h.chain')
    .limit(limit)
    .execute()
  return rows.map(({ chain }) => chain)
}

type Claimant = { holder: string; now: Instant }

/** Claims those of these chains that no other process has claimed meanwhile. */
export async function claimChains(
  tx: Db,
  chains: readonly string[],
  { holder, now }: Claimant,
): Promise<string[]> {
  const [since, latest] = plausibleRange(now, now, longestClaimSeconds)
  const claim = { holder, claimed_until: addSeconds(now, claimSeconds) }
  // In one order, so that no two processes wait for each other.
  const rows = [...chains].sort().map((chain) => ({ chain, ...claim }))
  const claimed = await tx
    .insertInto('audit_checkpoint_claims')
    .values(rows)
    .onConflict((c) =>
      c
        .column('chain')
        .doUpdateSet(claim)
        .where((eb) =>
          eb.or([
            eb('audit_checkpoint_claims.claimed_until', '<=', since),
            eb('audit_checkpoint_claims.claimed_until', '>', latest),
          ]),
        ),
    )
    .returning('chain')
    .execute()
  return claimed.map(({ chain }) => chain)
}

/** Ends claims of a process; returns the chains that it still had. One that was frozen for too long has lost them. */
export async function endClaims(tx: Db, chains: readonly string[], holder: string): Promise<Set<string>> {
  const rows = await tx
    .deleteFrom('audit_checkpoint_claims')
    .where('chain', 'in', chains)
    .where('holder', '=', holder)
    .returning('chain')
    .execute()
  return new Set(rows.map(({ chain }) => chain))
}

/** A chain that cannot be signed is not tried again before its next checkpoint would be due. */
export async function postponeChains(
  tx: Db,
  chains: readonly string[],
  { holder, now, restSeconds }: Claimant & Pick<DueCheckpointsQuery, 'restSeconds'>,
): Promise<void> {
  const pause = Math.max(claimSeconds, Math.min(restSeconds, longestClaimSeconds))
  await tx
    .updateTable('audit_checkpoint_claims')
    .set({ claimed_until: addSeconds(now, pause) })
    .where('chain', 'in', chains)
    .where('holder', '=', holder)
    .execute()
}
