import { Problem } from '../core/errors.ts'
import { prepared } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'

const counted = prepared((db, p: { id: string; count: number }) =>
  db
    .updateTable('devices')
    .set((eb) => ({ log_seq: eb('log_seq', '+', p.count) }))
    .where('id', '=', p.id)
    .returning('log_seq'),
)

/**
 * Gives the next places among all that came in of a device. Its row is held until they are committed, so that
 * places become visible in their order: whoever reads on from one misses nothing that a slower transaction took
 * before. Ids and times are given before a transaction, and promise no such thing.
 */
export async function placed<L extends object>(
  db: Db,
  deviceId: string,
  logs: readonly L[],
): Promise<(L & { seq: number })[]> {
  if (logs.length === 0) return []
  const [row] = await counted(db, { id: deviceId, count: logs.length })
  if (!row) throw new Problem('not_found')
  const before = row.log_seq - logs.length
  return logs.map((log, n) => ({ ...log, seq: before + n + 1 }))
}

const head = prepared((db, p: { id: string }) =>
  db.selectFrom('devices').select('log_seq').where('id', '=', p.id),
)

/** The place of what came in last. */
export async function lastPlace(db: Db, deviceId: string): Promise<number> {
  return (await head(db, { id: deviceId }))[0]?.log_seq ?? 0
}
