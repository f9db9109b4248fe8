import { type ExpressionBuilder, expressionBuilder } from 'kysely'
import { Problem } from '../../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../../core/page.ts'
import { isNarrowed, ofOne, type Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { isHash } from '../../storage/query/expressions.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { readById, readPage } from '../../storage/query/pages.ts'
import { prepared, rowOf } from '../../storage/query/prepared.ts'
import { inGroups, inScope, inSites } from '../../storage/query/scope.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { DeviceRow, EnrollmentKeyRow, Tables } from '../../storage/schema/tables.ts'
import type { EnrolledDevice, EnrollmentKey } from './contract.ts'

const keyRows = rowsOf<Omit<EnrollmentKeyRow, 'key_hash'>>()()
const deviceRows = rowsOf<DeviceRow>()()

/** All columns except the hash. */
const columns = [
  'id',
  'org_id',
  'site_id',
  'name',
  'usage_count',
  'max_usage',
  'expires_at',
  'created_by',
  'created_at',
  'last_used_at',
  'last_device_id',
] as const

/** The same, hiding the last enrolled device if it is outside the caller's scope. */
const columnsIn = (scope: Scope) => (eb: ExpressionBuilder<Tables, 'enrollment_keys'>) => {
  const inSight = eb
    .selectFrom('devices')
    .select('devices.id')
    .whereRef('devices.id', '=', 'enrollment_keys.last_device_id')
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))
  return [...columns.filter(isNotLast), (isNarrowed(scope) ? inSight : eb.ref(last)).as(last)] as const
}

const last = 'last_device_id'
type NotLast = Exclude<(typeof columns)[number], typeof last>
const isNotLast = (column: (typeof columns)[number]): column is NotLast => column !== last

const keysIn = (db: Db, scope: Scope) =>
  db
    .selectFrom('enrollment_keys')
    .where(inScope(scope, 'enrollment_keys.org_id'))
    .where((eb) => eb.or([eb('site_id', 'is', null), inSites(scope, 'enrollment_keys.site_id')]))

const eb = expressionBuilder<Tables, 'enrollment_keys'>()

const hasUsesLeft = eb.or([
  eb('max_usage', 'is', null),
  eb('usage_count', '<', eb.ref('max_usage').$notNull()),
])
/** Whether a key has not expired. */
export const isLiveEnrollmentKey = (now: Instant) => eb('expires_at', '>', now)

/** Keys that can enroll a device, as `enrollmentRefusal` says of one. */
export const isUsableEnrollmentKey = (now: Instant) => eb.and([isLiveEnrollmentKey(now), hasUsesLeft])

type Span = { after: Instant; until: Instant }

/** Keys that are not used up and expire within a time. */
const expiringIn = (db: Db, scope: Scope, { after, until }: Span) =>
  keysIn(db, scope).where(isUsableEnrollmentKey(after)).where('expires_at', '<=', until)

/** Keys that have not expired. */
const liveIn = (db: Db, scope: Scope, now: Instant) => keysIn(db, scope).where(isLiveEnrollmentKey(now))

export const countLiveEnrollmentKeys = (db: Db, scope: Scope, now: Instant): Promise<number> =>
  countRowsOf(liveIn(db, scope, now))

export async function listLiveEnrollmentKeysById(
  db: Db,
  scope: Scope,
  page: IdPage,
  now: Instant,
): Promise<EnrollmentKey[]> {
  const select = (q: ReturnType<typeof keysIn>) => q.select(columnsIn(scope))
  const rows = await readById(liveIn(db, scope, now), 'enrollment_keys.id', page, select)
  return rows.map((row) => keyRows.read(row))
}

/** How many keys that are not used up expire within a time. */
export const countExpiringEnrollmentKeys = (db: Db, scope: Scope, within: Span): Promise<number> =>
  countRowsOf(expiringIn(db, scope, within))

/** Newest first: ids grow with time. */
export async function listEnrollmentKeys(
  db: Db,
  scope: Scope,
  query: PageQuery & {
    orgId?: string | undefined
    expired?: boolean | undefined
    expiresBefore?: Instant | undefined
  },
  now: Instant,
): Promise<Page<EnrollmentKey>> {
  const until = query.expiresBefore
  const found = (until === undefined ? keysIn(db, scope) : expiringIn(db, scope, { after: now, until }))
    .$if(query.orgId !== undefined, (q) => q.where('org_id', '=', query.orgId!))
    .$if(query.expired === true, (q) => q.where(eb.not(isLiveEnrollmentKey(now))))
    .$if(query.expired === false, (q) => q.where(isLiveEnrollmentKey(now)))
  const newestFirst = (q: typeof found) => q.select(columnsIn(scope)).orderBy('id', 'desc')
  return readPage(found, query, newestFirst, (row) => keyRows.read(row))
}

/** @throws not_found, also for a key outside the scope */
export async function getEnrollmentKey(db: Db, scope: Scope, id: string): Promise<EnrollmentKey> {
  const row = await keysIn(db, ofOne(scope)).select(columnsIn(scope)).where('id', '=', id).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Enrollment key not found')
  return keyRows.read(row)
}

/** Devices enrolled with a key, newest first. The caller has checked that the key is in scope. */
export async function listEnrolledDevices(
  db: Db,
  scope: Scope,
  keyId: string,
  page: PageQuery,
): Promise<Page<EnrolledDevice>> {
  const found = db
    .selectFrom('devices')
    .where('enrollment_key_id', '=', keyId)
    .where(inScope(scope, 'devices.org_id'))
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))
  const newestFirst = (q: typeof found) =>
    q
      .select(['id', 'org_id', 'site_id', 'hostname', 'os_type', 'status', 'enrolled_at', 'enrollment_ip'])
      .orderBy('enrolled_at', 'desc')
      .orderBy('id', 'desc')
  return readPage(found, page, newestFirst, (row) => deviceRows.read(row))
}

const insertion = prepared((db, p: { [K in keyof EnrollmentKeyRow]: EnrollmentKeyRow[K] }) =>
  db.insertInto('enrollment_keys').values(rowOf<EnrollmentKeyRow>(p, [...columns, 'key_hash'])),
)

export async function insertEnrollmentKey(db: Db, key: EnrollmentKey, hash: string): Promise<void> {
  await insertion(db, { ...keyRows.write(key), key_hash: hash })
}

export async function replaceEnrollmentKey(
  db: Db,
  scope: Scope,
  key: EnrollmentKey,
  hash: string,
): Promise<void> {
  await db
    .updateTable('enrollment_keys')
    .set({ key_hash: hash, usage_count: key.usageCount, max_usage: key.maxUsage, expires_at: key.expiresAt })
    .where('id', '=', key.id)
    .where(inScope(ofOne(scope), 'enrollment_keys.org_id'))
    .execute()
}

export async function changeEnrollmentKey(db: Db, scope: Scope, key: EnrollmentKey): Promise<void> {
  await db
    .updateTable('enrollment_keys')
    .set({ name: key.name, max_usage: key.maxUsage, expires_at: key.expiresAt })
    .where('id', '=', key.id)
    .where(inScope(ofOne(scope), 'enrollment_keys.org_id'))
    .execute()
}

export async function removeEnrollmentKey(db: Db, scope: Scope, id: string): Promise<void> {
  await db
    .deleteFrom('enrollment_keys')
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'enrollment_keys.org_id'))
    .execute()
}

/** Expires every key in a scope, with its tenant, so that none works when the tenant is in use again. */
export async function expireEnrollmentKeys(db: Db, scope: Scope, now: Instant): Promise<void> {
  await db
    .updateTable('enrollment_keys')
    .set({ expires_at: now })
    .where(isLiveEnrollmentKey(now))
    .where(inScope(scope, 'enrollment_keys.org_id'))
    .execute()
}

// Enrolling: the key itself is the credential, so its hash takes the place of a scope.

export async function findByHash(db: Db, hash: string): Promise<EnrollmentKey | undefined> {
  const found = db.selectFrom('enrollment_keys').select(columns).where(isHash('key_hash', hash))
  const row = await found.executeTakeFirst()
  return row && keyRows.read(row)
}

/** Locks the tenant of an enrolling key, so that its device caps hold under parallel enrollments. */
export async function lockDeviceCaps(db: Db, orgId: string) {
  const named = await db
    .selectFrom('organizations')
    .select('partner_id')
    .where('id', '=', orgId)
    .executeTakeFirst()
  if (!named) return undefined
  // The partner first, as in every transaction that locks both: a different order could deadlock.
  const partner = await forUpdate(
    db
      .selectFrom('partners')
      .select(['status', 'deleted_at', 'max_devices'])
      .where('id', '=', named.partner_id),
  ).executeTakeFirst()
  const org = await forUpdate(
    db
      .selectFrom('organizations')
      .select(['id', 'partner_id', 'status', 'deleted_at', 'max_devices'])
      .where('id', '=', orgId),
  ).executeTakeFirst()
  return partner && org && { org, partner }
}

/**
 * Counts one use; false when the key has just been used up or expired. It is the last statement of an
 * enrollment, so that a failed one uses nothing and parallel ones never exceed maxUsage.
 */
export async function consumeEnrollmentKey(
  db: Db,
  hash: string,
  deviceId: string,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('enrollment_keys')
    .set((eb) => ({ usage_count: eb('usage_count', '+', 1), last_used_at: now, last_device_id: deviceId }))
    .where(isHash('key_hash', hash))
    .where(isUsableEnrollmentKey(now))
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}
