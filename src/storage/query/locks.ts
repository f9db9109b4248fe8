import type { SelectQueryBuilder } from 'kysely'

/** Locks rows that a write is about to change. SQLite needs no lock: its writes run one at a time. */
export function forUpdate<DB, TB extends keyof DB, O>(
  query: SelectQueryBuilder<DB, TB, O>,
  options: { skipLocked?: boolean } = {},
): SelectQueryBuilder<DB, TB, O> {
  const locked = query.forUpdate()
  return options.skipLocked ? locked.skipLocked() : locked
}

/** The same for rows that keep their keys: rows that refer to them may be added meanwhile. */
export const forNoKeyUpdate = <DB, TB extends keyof DB, O>(
  query: SelectQueryBuilder<DB, TB, O>,
  options: { skipLocked?: boolean } = {},
): SelectQueryBuilder<DB, TB, O> => {
  const locked = query.forNoKeyUpdate()
  return options.skipLocked ? locked.skipLocked() : locked
}

/** The weakest lock: it stops only those who take the row `forUpdate`, delete it or change its key. */
export const forKeyShare = <DB, TB extends keyof DB, O>(
  query: SelectQueryBuilder<DB, TB, O>,
): SelectQueryBuilder<DB, TB, O> => query.forKeyShare()

/** A shared lock: the row cannot change, and transactions that only refer to it do not wait for each other. */
export const forShare = <DB, TB extends keyof DB, O>(
  query: SelectQueryBuilder<DB, TB, O>,
): SelectQueryBuilder<DB, TB, O> => query.forShare()
