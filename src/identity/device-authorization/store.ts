import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { rowsOf, type Value } from '../../storage/schema/rows.ts'
import type { DeviceAuthorizationRow } from '../../storage/schema/tables.ts'
import type { SessionContext } from '../rules.ts'
import { contextKey } from '../sessions/store.ts'

/* The code is the credential here: until it is approved it belongs to nobody. */

const rows = rowsOf<DeviceAuthorizationRow>()({ flags: ['mfa'] })

type StoredAuthorization = Value<DeviceAuthorizationRow, never, 'mfa'>
export type NewAuthorization = Pick<
  StoredAuthorization,
  'id' | 'deviceCodeHash' | 'userCodeHash' | 'client' | 'ip' | 'createdAt' | 'expiresAt'
>

/** The session that an approval grants: as the session that approved it was. */
export type Approval = {
  userId: string
  context: SessionContext
  mfa: boolean
  ssoProviderId: string | null
  authEpoch: number
  mfaEpoch: number
  provedAt: Instant
  endsBy: Instant
}

export type Authorization = NewAuthorization & {
  status: 'pending' | 'denied' | 'approved'
  /** null unless it is approved. */
  approval: (Approval & { ssoStatus: string | null }) | null
}

export async function insertAuthorization(db: Db, authorization: NewAuthorization): Promise<void> {
  await db
    .insertInto('device_authorizations')
    .values({ ...rows.write(authorization), status: 'pending' })
    .execute()
}

type By = { deviceCodeHash: string } | { userCodeHash: string }

export async function findAuthorization(db: Db, by: By, now: Instant): Promise<Authorization | undefined> {
  const found = db
    .selectFrom('device_authorizations as a')
    .leftJoin('sso_providers as p', 'p.id', 'a.sso_provider_id')
    .selectAll('a')
    .select('p.status as sso_status')
    .where('a.expires_at', '>', now)
  const row = await ('deviceCodeHash' in by
    ? found.where('a.device_code_hash', '=', by.deviceCodeHash)
    : found.where('a.user_code_hash', '=', by.userCodeHash)
  ).executeTakeFirst()
  if (!row) return undefined
  const { sso_status: ssoStatus, context, ...rest } = row
  const { status, userId, mfa, ssoProviderId, authEpoch, mfaEpoch, provedAt, endsBy, ...request } =
    rows.read(rest)
  const approval = status === 'approved' && {
    userId: userId!,
    context: JSON.parse(context!) as SessionContext,
    mfa: mfa!,
    ssoProviderId,
    ssoStatus,
    authEpoch: authEpoch!,
    mfaEpoch: mfaEpoch!,
    provedAt: provedAt!,
    endsBy: endsBy!,
  }
  return { ...request, status: status as Authorization['status'], approval: approval || null }
}

/** Records the decision of a person, null denies, and returns what asked; undefined when it was decided before or has expired. */
export async function decide(
  db: Db,
  userCodeHash: string,
  approval: Approval | null,
  now: Instant,
): Promise<Pick<Authorization, 'client' | 'ip'> | undefined> {
  const granted = approval && rows.write({ ...approval, context: contextKey(approval.context) })
  return db
    .updateTable('device_authorizations')
    .set({ status: approval ? 'approved' : 'denied', ...granted })
    .where('user_code_hash', '=', userCodeHash)
    .where('status', '=', 'pending')
    .where('expires_at', '>', now)
    .returning(['client', 'ip'])
    .executeTakeFirst()
}

/** True for the one request that uses it. */
export async function consumeAuthorization(db: Db, id: string): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('device_authorizations')
    .where('id', '=', id)
    .executeTakeFirstOrThrow()
  return numDeletedRows === 1n
}

export async function sweepDeviceAuthorizations(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('device_authorizations').where('expires_at', '<', now).execute()
}
