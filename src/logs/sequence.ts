import { Problem } from '../core/errors.ts'
import type { Db } from '../storage/open.ts'
import { prepared } from '../storage/query/prepared.ts'
import type { LogQuota, Owner } from './quota.ts'

type Counted = { id: string; count: number; bytes: number; room: number }

const counted = prepared((db, p: Counted) =>
  db
    .updateTable('devices')
    .set((eb) => ({ log_seq: eb('log_seq', '+', p.count), log_bytes: eb('log_bytes', '+', p.bytes) }))
    .where('id', '=', p.id)
    // One request is always accepted, however large; otherwise it could never be submitted.
    .where('log_bytes', '<=', p.room)
    .returning(['log_seq', 'log_bytes']),
)

/**
 * Assigns the next sequence numbers of a device's entries, and counts the bytes. The device's row is locked
 * until they are committed, so that sequence numbers become visible in order: a caller that reads on from one
 * misses nothing from a slower transaction. Ids and times are assigned before a transaction and guarantee no
 * such order.
 * @throws log_quota_exceeded when the device has used its quota
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
  quota.recordStored(owner, bytes, row.log_bytes)
  const before = row.log_seq - logs.length
  return logs.map((log, n) => ({ ...log, seq: before + n + 1 }))
}

const isThere = prepared((db, p: { id: string }) =>
  db.selectFrom('devices').select('id').where('id', '=', p.id),
)

/** Subtracts bytes that were counted but not stored. */
export const subtractBytes = prepared((db, p: { id: string; bytes: number }) =>
  db
    .updateTable('devices')
    .set((eb) => ({ log_bytes: eb('log_bytes', '-', p.bytes) }))
    .where('id', '=', p.id),
)

const head = prepared((db, p: { id: string }) =>
  db.selectFrom('devices').select('log_seq').where('id', '=', p.id),
)

/** Sequence number of the last entry. */
export async function lastSequence(db: Db, deviceId: string): Promise<number> {
  return (await head(db, { id: deviceId }))[0]?.log_seq ?? 0
}
