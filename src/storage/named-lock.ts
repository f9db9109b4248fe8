import { sql } from 'kysely'
import type { Db } from './db.ts'
import { isPostgres } from './query/prepared.ts'

/**
 * Lets one write at a time decide about what a name stands for, also where there is no row to lock yet; `shared`: beside
 * others that share it. Held until the transaction ends. SQLite needs no lock: its writes run one at a time.
 */
export async function lockName(
  db: Db,
  name: string,
  mode: 'exclusive' | 'shared' = 'exclusive',
): Promise<void> {
  if (!isPostgres(db.getExecutor())) return
  const key = sql`hashtextextended(${name}, 0)`
  const suffix = sql.raw(mode === 'shared' ? '_shared' : '')
  const { rows } = await sql<{ isFree: boolean }>`
    select pg_try_advisory_xact_lock${suffix}(${key}) as "isFree"`.execute(db)
  if (rows[0]!.isFree) return
  await sql`select pg_advisory_xact_lock${suffix}(${key})`.execute(db)
  throw new WaitedError(name)
}

/** What the holder has committed is not in the snapshot of the transaction that has waited: it starts again. */
class WaitedError extends Error {
  /** Serialization failure: `write` runs its work again. */
  readonly code = '40001'

  constructor(name: string) {
    super(`Another transaction had the lock of "${name}"`)
    this.name = 'WaitedError'
  }
}
