import { addSeconds, type Instant } from '../core/time.ts'
import { forEachSettled, writeInChunks } from '../storage/bisect-writes.ts'
import type { Db, Storage } from '../storage/open.ts'
import { forNoKeyUpdate } from '../storage/query/locks.ts'
import { rowList } from '../storage/query/row-list.ts'
import type { LogQuota } from './quota.ts'
import { computeShares } from './quota-shares.ts'
import { type LogTable, logTables, sizeIn, sumOfSizes } from './sizes.ts'

/** Rows of one write, which bounds the time that other writers wait. */
const batch = 1000
const day = 86_400

export type Retention = { agentLogRetentionDays: number; eventLogRetentionDays: number }

/** Deletes entries that arrived before their retention period. Any number of processes may do so at once. */
export async function deleteOldLogs(
  storage: Storage,
  { agentLogRetentionDays, eventLogRetentionDays }: Retention,
  now: Instant,
): Promise<void> {
  const kept = [
    ['agent_logs', agentLogRetentionDays],
    ['device_event_logs', eventLogRetentionDays],
  ] as const
  await forEachSettled(kept, ([table, days]) => forget(storage, table, addSeconds(now, -days * day)))
}

async function forget(storage: Storage, table: LogTable, before: Instant): Promise<void> {
  const find = (except: readonly string[]) =>
    storage.read
      .selectFrom(table)
      .select('id')
      .where('created_at', '<', before)
      .$if(except.length > 0, (q) => q.where('id', 'not in', except))
      .orderBy('created_at')
      .limit(batch)
      .execute()
  const remove = (tx: Db, ids: readonly string[]) => removeWithDevices(tx, table, ids)
  await writeInChunks(storage, find, remove, batch)
}

async function removeWithDevices(tx: Db, table: LogTable, ids: readonly string[]): Promise<void> {
  const of = await tx.selectFrom(table).select('device_id').distinct().where('id', 'in', ids).execute()
  if (of.length === 0) return
  await lockDevices(
    tx,
    of.map(({ device_id }) => device_id),
  )
  await uncountEach(tx, await remove(tx, table, ids))
}

/**
 * Devices are locked before their entries: an agent that submits entries holds its device's lock, and may wait
 * for an entry of the same record that is being deleted.
 */
async function lockDevices(tx: Db, ids: string[]): Promise<void> {
  await forNoKeyUpdate(tx.selectFrom('devices').select('id').where('id', 'in', ids).orderBy('id')).execute()
}

type Gone = { device_id: string; bytes: number }

const remove = (tx: Db, table: LogTable, ids: readonly string[]): Promise<Gone[]> =>
  tx
    .deleteFrom(table)
    .where('id', 'in', ids)
    .returning(['device_id', sizeIn(table).as('bytes')])
    .execute()

const counts = rowList<Gone>({ device_id: 'text', bytes: 'bigint' })

async function uncountEach(tx: Db, gone: readonly Gone[]): Promise<void> {
  const sums = new Map<string, number>()
  for (const { device_id, bytes } of gone) sums.set(device_id, (sums.get(device_id) ?? 0) + bytes)
  const rows = counts.of([...sums].map(([device_id, bytes]) => ({ device_id, bytes })))
  await tx
    .updateTable('devices')
    .from(counts.as(rows, 'gone'))
    .whereRef('devices.id', '=', 'gone.device_id')
    .set((eb) => ({
      // Entries stored before bytes were counted may add up to more.
      log_bytes: eb
        .case()
        .when('devices.log_bytes', '>', eb.ref('gone.bytes'))
        .then(eb('devices.log_bytes', '-', eb.ref('gone.bytes')))
        .else(0)
        .end(),
    }))
    .execute()
}

/**
 * Deletes the oldest entries of devices above their quota, and an eighth of the quota more, so that there is
 * room for a while. Any number of processes may do so at once.
 */
export async function enforceQuotas(storage: Storage, quota: LogQuota): Promise<{ bytes: number }> {
  const { bytes, full } = await computeShares(storage, 'log_bytes', quota)
  await forEachSettled(full, async ({ id, org_id }) => {
    const deleted = await trim(storage, id, quota.roomOf(org_id))
    if (deleted > 0) quota.deleted({ deviceId: id, orgId: org_id }, deleted)
  })
  return { bytes }
}

/** Returns how many entries were deleted. */
async function trim(storage: Storage, deviceId: string, room: number): Promise<number> {
  const aim = Math.floor((room / 8) * 7)
  let deleted = 0
  for (let max = room; ; max = aim) {
    const gone = await storage.write((tx) => trimSome(tx, deviceId, { max, aim }), { unsynced: true })
    deleted += gone
    if (gone === 0) return deleted
  }
}

async function trimSome(tx: Db, deviceId: string, { max, aim }: { max: number; aim: number }) {
  await lockDevices(tx, [deviceId])
  const device = await tx
    .selectFrom('devices')
    .select('log_bytes')
    .where('id', '=', deviceId)
    .executeTakeFirst()
  if (!device || device.log_bytes <= max) return 0
  const oldest = await oldestOf(tx, deviceId)
  if (oldest.length === 0) {
    // The count was wrong.
    await tx.updateTable('devices').set({ log_bytes: 0 }).where('id', '=', deviceId).execute()
    return 0
  }
  let left = device.log_bytes
  const excess = oldest.filter(({ bytes }) => {
    if (left <= aim) return false
    left -= bytes
    return true
  })
  for (const table of logTables) {
    const ids = excess.flatMap((one) => (one.table === table ? [one.id] : []))
    if (ids.length > 0) await uncountEach(tx, await remove(tx, table, ids))
  }
  return excess.length
}

/** Oldest entries of both kinds, in order of arrival. */
async function oldestOf(tx: Db, deviceId: string) {
  const found = []
  for (const table of logTables) {
    const rows = await tx
      .selectFrom(table)
      .select(['id', 'seq', sizeIn(table).as('bytes')])
      .where('device_id', '=', deviceId)
      .orderBy('seq')
      .limit(batch)
      .execute()
    found.push(...rows.map((row) => ({ ...row, table })))
  }
  return found.sort((a, b) => a.seq - b.seq).slice(0, batch)
}

/** Devices whose logs one query sums up, and queries in one run. */
const recountLimits = { atOnce: 50, times: 20 }

/**
 * Recounts the stored bytes of the next devices after `after`, unless entries arrive meanwhile. Returns the
 * last of them, or undefined at the end. It counts entries written by processes of the previous release.
 */
export async function recountBytes(storage: Storage, after = ''): Promise<string | undefined> {
  let last = after
  for (let times = 0; times < recountLimits.times; times += 1) {
    const devices = await storage.heavy
      .selectFrom('devices')
      .select(['devices.id', 'log_seq', 'log_bytes'])
      .select((eb) => [
        eb
          .selectFrom('agent_logs as l')
          .whereRef('l.device_id', '=', 'devices.id')
          .select(sumOfSizes('agent_logs').as('bytes'))
          .as('diagnosticBytes'),
        eb
          .selectFrom('device_event_logs as l')
          .whereRef('l.device_id', '=', 'devices.id')
          .select(sumOfSizes('device_event_logs').as('bytes'))
          .as('eventBytes'),
      ])
      .where('devices.id', '>', last)
      .orderBy('devices.id')
      .limit(recountLimits.atOnce)
      .execute()
    for (const { id, log_seq, log_bytes, diagnosticBytes, eventBytes } of devices) {
      const bytes = Number(diagnosticBytes) + Number(eventBytes)
      if (bytes !== log_bytes) await correct(storage, { id, log_seq, log_bytes }, bytes)
    }
    if (devices.length < recountLimits.atOnce) return undefined
    last = devices.at(-1)!.id
  }
  return last
}

type Count = { id: string; log_seq: number; log_bytes: number }

async function correct(storage: Storage, { id, log_seq, log_bytes }: Count, bytes: number): Promise<void> {
  const setting = (tx: Db) =>
    tx
      .updateTable('devices')
      .set({ log_bytes: bytes })
      .where('id', '=', id)
      // Entries may have arrived or been deleted meanwhile.
      .where('log_seq', '=', log_seq)
      .where('log_bytes', '=', log_bytes)
      .execute()
  await storage.write(setting, { unsynced: true })
}
