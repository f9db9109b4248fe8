import { Problem } from '../core/errors.ts'
import { prepared } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'
import type { LogQuota, Owner } from './quota.ts'

type Counted = { id: string; count: number; bytes: number; room: number }

const counted = prepared((db, p: Counted) =>
  db
    .updateTable('devices')
    .set((eb) => ({ log_seq: eb('log_seq', '+', p.count), log_bytes: eb('log_bytes', '+', p.bytes) }))
    .where('id', '=', p.id)
    // One request is always taken, however large: or it could never be handed in.
    .where('log_bytes', '<=', p.room)
    .returning(['log_seq', 'log_bytes']),
)

/**
 * Gives the next places among all that came in of a device, and counts the bytes. Its row is held until they are
 * committed, so that places become visible in their order: whoever reads on from one misses nothing that a slower
 * transaction took before. Ids and times are given before a transaction, and promise no such thing.
 * @throws log_quota_exceeded when as much is kept of it as may be
 */
export async function withSequence<L extends object>(
  db: Db,
  owner: Owner,
  { logs, bytes }: { logs: readonly L[]; bytes: number },
  quota: LogQuota,
): Promise<(L & { seq: number })[]> {
  if (logs.length === 0) return []
  const { deviceId: id, orgId } = owner
  const [row] = await counted(db, { id, count: logs.length, bytes, room: quota.roomOf(orgId) })
  if (!row)
    throw (await isThere(db, { id }))[0] ? quota.refusal(owner, logs.length) : new Problem('not_found')
  quota.took(owner, bytes, row.log_bytes)
  const before = row.log_seq - logs.length
  return logs.map((log, n) => ({ ...log, seq: before + n + 1 }))
}

const isThere = prepared((db, p: { id: string }) =>
  db.selectFrom('devices').select('id').where('id', '=', p.id),
)

/** Of what was counted, so many bytes are not kept. */
export const subtractBytes = prepared((db, p: { id: string; bytes: number }) =>
  db
    .updateTable('devices')
    .set((eb) => ({ log_bytes: eb('log_bytes', '-', p.bytes) }))
    .where('id', '=', p.id),
)

const head = prepared((db, p: { id: string }) =>
  db.selectFrom('devices').select('log_seq').where('id', '=', p.id),
)

/** The place of what came in last. */
export async function lastSequence(db: Db, deviceId: string): Promise<number> {
  return (await head(db, { id: deviceId }))[0]?.log_seq ?? 0
}
