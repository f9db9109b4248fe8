import type { Instant } from '../core/time.ts'
import { type Deleted, deleteRecords, type EndedRecords } from '../storage/ended-records.ts'
import type { Db, Storage } from '../storage/open.ts'
import { recordAudit } from './outbox.ts'
import { toDraftEntry } from './rules.ts'

/** Deletes records whose time has passed; their audit entries are called `<resourceType>.delete`. */
export const deleteEnded = (
  storage: Storage,
  resourceType: string,
  ended: EndedRecords,
  now: Instant,
): Promise<void> =>
  deleteRecords(storage, ended, (tx, deleted) => recordDeletions(tx, resourceType, deleted, now))

/**
 * Records, in the transaction that deleted them, what retention deleted: one entry of each organization, with the names,
 * because nothing else has them any more.
 */
export async function recordDeletions(
  tx: Db,
  resourceType: string,
  deleted: readonly Deleted[],
  now: Instant,
): Promise<void> {
  for (const [orgId, own] of Map.groupBy(deleted, (one) => one.org_id)) {
    const alone = own.length === 1 ? own[0] : undefined
    const event = {
      orgId,
      actorType: 'system' as const,
      actorId: null,
      actorEmail: null,
      action: `${resourceType}.delete`,
      resourceType,
      resourceId: alone?.id ?? null,
      resourceName: alone?.name ?? null,
      details: { retention: true, deleted: own.map(({ id, name }) => ({ id, name })) },
      ipAddress: null,
      userAgent: null,
      result: 'success' as const,
    }
    await recordAudit(tx, toDraftEntry(event, now))
  }
}
