import { Problem } from '../core/errors.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { textsOf } from '../storage/query/expressions.ts'
import { forUpdate } from '../storage/query/locks.ts'
import type { Device } from './contract.ts'
import { rowOf } from './rows.ts'
import { maxPerDevice, nameKeys } from './rules.ts'
import { devicesIn, getDevice } from './store.ts'

/* Changes that users make to devices. */

/** Locks the device until the transaction ends. @throws not_found, also for a device outside the scope */
export async function lockDevice(db: Db, scope: Scope, id: string): Promise<Device> {
  await forUpdate(devicesIn(db, ofOne(scope)).select('devices.id').where('devices.id', '=', id)).execute()
  return getDevice(db, scope, id)
}

/** The tags of a device as stored in its row: every change of device_tags must update them. */
export const aggregatedTags = textsOf({ table: 'device_tags', by: 'device_id', of: 'devices.id' }, 'tag')

/** Writes the differences between two states of a locked device. */
export async function saveDevice(db: Db, before: Device, after: Device): Promise<void> {
  const stored = { ...rowOf(before), ...nameKeys(before) }
  const wanted = Object.entries({ ...rowOf(after), ...nameKeys(after) })
  const changed = wanted.filter(([column, value]) => value !== stored[column as keyof typeof stored])
  await saveTags(db, before, after)
  await saveCustomFields(db, before, after)
  await db
    .updateTable('devices')
    .set({ ...Object.fromEntries(changed), tags: aggregatedTags })
    .where('id', '=', after.id)
    .execute()
}

async function saveTags(db: Db, { id, tags: before }: Device, { tags: after }: Device): Promise<void> {
  const gone = before.filter((tag) => !after.includes(tag))
  const added = after.filter((tag) => !before.includes(tag))
  if (gone.length > 0) {
    await db.deleteFrom('device_tags').where('device_id', '=', id).where('tag', 'in', gone).execute()
  }
  if (added.length > 0) {
    const rows = added.map((tag) => ({ device_id: id, tag }))
    await db.insertInto('device_tags').values(rows).execute()
  }
}

async function saveCustomFields(
  db: Db,
  { id, customFields: before }: Device,
  { customFields: after }: Device,
): Promise<void> {
  const gone = Object.keys(before).filter((key) => !Object.hasOwn(after, key))
  const rows = Object.entries(after)
    .filter(([key, value]) => before[key] !== value)
    .map(([key, value]) => ({ device_id: id, key, value }))
  if (gone.length > 0) {
    await db.deleteFrom('device_custom_fields').where('device_id', '=', id).where('key', 'in', gone).execute()
  }
  if (rows.length > 0) {
    await db
      .insertInto('device_custom_fields')
      .values(rows)
      .onConflict((oc) =>
        oc.columns(['device_id', 'key']).doUpdateSet((eb) => ({ value: eb.ref('excluded.value') })),
      )
      .execute()
  }
}

/** Locks the devices until the transaction ends. @throws not_found when one of them is not in the scope */
export async function lockDevices(
  db: Db,
  scope: Scope,
  ids: readonly string[],
): Promise<{ id: string; org_id: string; hostname: string; tags: string }[]> {
  const wanted = [...new Set(ids)]
  const found = devicesIn(db, scope)
    .select(['devices.id', 'org_id', 'hostname', 'tags'])
    .where('devices.id', 'in', wanted)
    .orderBy('devices.id')
  const rows = await forUpdate(found).execute()
  if (rows.length < wanted.length) throw new Problem('not_found', 'Device not found')
  return rows
}

/** Changes tags of locked devices; false when one of them would have too many. */
export async function changeTags(
  db: Db,
  ids: readonly string[],
  { add, remove }: { add: readonly string[]; remove: readonly string[] },
  now: Instant,
): Promise<boolean> {
  if (remove.length > 0) {
    await db.deleteFrom('device_tags').where('device_id', 'in', ids).where('tag', 'in', remove).execute()
  }
  for (const tag of new Set(add)) {
    const rows = ids.map((id) => ({ device_id: id, tag }))
    await db
      .insertInto('device_tags')
      .values(rows)
      .onConflict((oc) => oc.doNothing())
      .execute()
  }
  await db
    .updateTable('devices')
    .set({ tags: aggregatedTags, updated_at: now })
    .where('id', 'in', ids)
    .execute()
  const full = db
    .selectFrom('device_tags')
    .select('device_id')
    .where('device_id', 'in', ids)
    .groupBy('device_id')
    .having((eb) => eb.fn.countAll(), '>', maxPerDevice.tags)
    .limit(1)
  return (await full.execute()).length === 0
}

/**
 * Deletes a device permanently, with everything that belongs to it. The caller has found it within the scope and
 * locked it.
 */
export async function removeDevice(db: Db, id: string): Promise<void> {
  await db.deleteFrom('devices').where('id', '=', id).execute()
}
