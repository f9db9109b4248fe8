import { recordDeletions } from '../audit/deletions.ts'
import type { Instant } from '../core/time.ts'
import type { Db, Storage } from '../storage/open.ts'
import { equalsText } from '../storage/query/expressions.ts'
import { forUpdate } from '../storage/query/locks.ts'

/** Rows of one transaction. */
const batch = 500
const pageSize = 50
/** Devices of one run, so that the service can stop between two. */
const maxDevices = 500
/** Beyond that many it is not the rows that are at fault. */
const maxFailures = 5000

/** What one device may have a great many of: deleted step by step before the device, which takes the rest with it. */
const many = ['agent_logs', 'device_event_logs', 'agent_commands', 'device_group_changes', 'alerts'] as const

/**
 * Deletes devices that were decommissioned, and not changed since, before a time, with everything that belongs to them.
 * One that cannot be deleted holds up no other.
 */
export async function deleteRetiredDevices(storage: Storage, before: Instant, now: Instant): Promise<void> {
  const found = retired(storage.read, before).select(['id', 'updated_at']).orderBy('updated_at').orderBy('id')
  let after: { id: string; updated_at: string } | undefined
  const failures: unknown[] = []
  for (let deleted = 0; deleted < maxDevices && failures.length < maxFailures; ) {
    const last = after
    const devices = await found
      .$if(last !== undefined, (q) =>
        q.where(({ or, and, eb }) =>
          or([
            eb('updated_at', '>', last!.updated_at),
            and([eb('updated_at', '=', last!.updated_at), eb('id', '>', last!.id)]),
          ]),
        ),
      )
      .limit(pageSize)
      .execute()
    after = devices.at(-1)
    const failed = failures.length
    for (const { id } of devices)
      await deleteDevice(storage, id, before, now).catch((error: unknown) => failures.push(error))
    deleted += devices.length - (failures.length - failed)
    if (devices.length < pageSize) break
  }
  if (failures.length > 0) throw failures[0]
}

const retired = (db: Db, before: Instant) =>
  db.selectFrom('devices').where(equalsText('status', 'decommissioned')).where('updated_at', '<', before)

async function deleteDevice(storage: Storage, id: string, before: Instant, now: Instant): Promise<void> {
  // It may be restored at any time, and then keeps what it still has.
  const lock = (tx: Db) =>
    forUpdate(
      retired(tx, before).select(['id', 'org_id', 'hostname as name']).where('id', '=', id),
    ).executeTakeFirst()
  for (const table of many) {
    const deleteSome = async (tx: Db): Promise<bigint> => {
      if (!(await lock(tx))) return 0n
      const some = tx.selectFrom(table).select('id').where('device_id', '=', id).limit(batch)
      const { numDeletedRows } = await tx.deleteFrom(table).where('id', 'in', some).executeTakeFirstOrThrow()
      return numDeletedRows
    }
    while ((await storage.write(deleteSome, { unsynced: true })) > 0n);
  }
  await storage.write(async (tx) => {
    const device = await lock(tx)
    if (!device) return
    await tx.deleteFrom('devices').where('id', '=', id).execute()
    await recordDeletions(tx, 'device', [device], now)
  })
}
