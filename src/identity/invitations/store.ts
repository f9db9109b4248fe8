import { newId } from '../../core/new-id.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { Tenant } from '../rules.ts'
import { idOfTenant } from '../users/rules.ts'
import type { Invitation } from './rules.ts'

/* The token itself is the credential, so its hash takes the place of a scope. */

/** Each person has one valid link per tenant: a new one replaces it. */
export async function saveInvitation(
  db: Db,
  {
    userId,
    tenant,
    shown,
    ...link
  }: { userId: string; tenant: Tenant; tokenHash: string; expiresAt: Instant; shown: boolean },
  now: Instant,
): Promise<void> {
  const fresh = {
    token_hash: link.tokenHash,
    expires_at: link.expiresAt,
    accepted_at: null,
    created_at: now,
    shown: shown ? 1 : 0,
  }
  const place = { user_id: userId, tenant_kind: tenant.kind, tenant_id: idOfTenant(tenant) }
  await db
    .insertInto('invitations')
    .values({ id: newId(), ...place, ...fresh })
    .onConflict((c) => c.columns(['user_id', 'tenant_id']).doUpdateSet(fresh))
    .execute()
}

export async function findInvitation(db: Db, tokenHash: string): Promise<Invitation | undefined> {
  const row = await db
    .selectFrom('invitations as i')
    .innerJoin('users as u', 'u.id', 'i.user_id')
    .select(['i.id', 'i.user_id', 'i.tenant_kind', 'i.tenant_id', 'i.expires_at', 'i.accepted_at', 'i.shown'])
    .select(['u.email', 'u.name', 'u.status', 'u.password_hash'])
    .where('i.token_hash', '=', tokenHash)
    .executeTakeFirst()
  return (
    row && {
      id: row.id,
      userId: row.user_id,
      tenant:
        row.tenant_kind === 'partner'
          ? { kind: 'partner', partnerId: row.tenant_id }
          : { kind: 'organization', orgId: row.tenant_id },
      expiresAt: row.expires_at,
      acceptedAt: row.accepted_at,
      shown: row.shown === 1,
      email: row.email,
      name: row.name,
      status: row.status,
      hasPassword: row.password_hash !== null,
    }
  )
}

/** True for the one request that uses the link; it also ends the person's other links. */
export async function consumeInvitation(
  db: Db,
  { id, userId }: Pick<Invitation, 'id' | 'userId'>,
  tokenHash: string,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('invitations')
    .set({ accepted_at: now })
    .where('id', '=', id)
    .where('token_hash', '=', tokenHash)
    .where('accepted_at', 'is', null)
    .executeTakeFirstOrThrow()
  if (numUpdatedRows !== 1n) return false
  await db
    .updateTable('invitations')
    .set({ accepted_at: now })
    .where('user_id', '=', userId)
    .where('accepted_at', 'is', null)
    .execute()
  return true
}

/**
 * Sets the first password of an account; false when it has one. `proved`: only the mailbox received the link,
 * so using it proves the address. Otherwise the address counts as unproved, whatever was recorded before.
 */
export async function activateAccount(
  db: Db,
  userId: string,
  passwordHash: string,
  proved: boolean,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('users')
    .set({
      status: 'active',
      password_hash: passwordHash,
      password_changed_at: now,
      email_proved_at: proved ? now : null,
      updated_at: now,
    })
    .where('id', '=', userId)
    .where('status', '!=', 'disabled')
    .where('password_hash', 'is', null)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

/**
 * Voids the person's other outstanding links: each was sent for one membership, and must not open the one added
 * now. Their recipient needs a new link.
 */
export async function voidOtherInvitations(db: Db, userId: string, tenant: Tenant): Promise<void> {
  await db
    .deleteFrom('invitations')
    .where('user_id', '=', userId)
    .where('tenant_id', '!=', idOfTenant(tenant))
    .execute()
}

export async function voidInvitation(db: Db, userId: string, tenant: Tenant): Promise<void> {
  await db
    .deleteFrom('invitations')
    .where('user_id', '=', userId)
    .where('tenant_id', '=', idOfTenant(tenant))
    .execute()
}

/** Name of a tenant. */
export async function findTenantName(db: Db, tenant: Tenant): Promise<string> {
  const row =
    tenant.kind === 'partner'
      ? await db.selectFrom('partners').select('name').where('id', '=', tenant.partnerId).executeTakeFirst()
      : await db.selectFrom('organizations').select('name').where('id', '=', tenant.orgId).executeTakeFirst()
  return row?.name ?? ''
}

/** Deletes expired invitations. */
export async function sweepInvitations(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('invitations').where('expires_at', '<', now).execute()
}
