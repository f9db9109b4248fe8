import { systemScope } from '../../src/core/scope.ts'
import type { Instant } from '../../src/core/time.ts'
import { isUsableApiKey, revokeApiKeys } from '../../src/credentials/api-keys/store.ts'
import { expireEnrollmentKeys, isUsableEnrollmentKey } from '../../src/credentials/enrollment-keys/store.ts'
import { membershipIsInForce } from '../../src/identity/memberships.ts'
import type { Db } from '../../src/storage/open.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'

/*
 * A backup brings back what gave access when it was made, and may have been ended since. Nothing in it says what was ended, so
 * a person decides: each kind is listed, and can be revoked as a whole.
 */

/** What `--revoke` takes. */
export const revocableKinds = [
  'agents',
  'api-keys',
  'enrollment-keys',
  'invitations',
  'recovery-codes',
  'sso-links',
  'sso-providers',
  'trust-policies',
] as const
export type RevocableKind = (typeof revocableKinds)[number]

export type RestoredAccess = { id: string; name: string; orgId: string | null }

/** By kind, each in the order of its names. Nobody ends all memberships: no one but system administrators would be left. */
export async function listRestoredAccess(
  db: Db,
  now: Instant,
): Promise<Record<RevocableKind | 'administrators' | 'memberships', RestoredAccess[]>> {
  const keys = db.selectFrom('api_keys').select(['id', 'name', 'org_id as orgId']).where(isUsableApiKey(now))
  const enrollment = db
    .selectFrom('enrollment_keys')
    .select(['id', 'name', 'org_id as orgId'])
    .where(isUsableEnrollmentKey(now))
  const invitations = db
    .selectFrom('invitations')
    .innerJoin('users', 'users.id', 'invitations.user_id')
    .select(['invitations.id', 'users.email as name'])
    .where('accepted_at', 'is', null)
    .where('invitations.expires_at', '>', now)
  const codes = db
    .selectFrom('recovery_codes')
    .innerJoin('users', 'users.id', 'recovery_codes.user_id')
    .select(['users.id', 'users.email as name'])
    .distinct()
    .where('used_at', 'is', null)
  const policies = db
    .selectFrom('trust_policies')
    .select(['id', 'name', 'org_id as orgId'])
    .where('status', '=', 'active')
  const providers = db
    .selectFrom('sso_providers')
    .select(['id', 'name', 'org_id as orgId'])
    .where('status', '=', 'active')
  const links = db
    .selectFrom('sso_identities')
    .innerJoin('sso_providers', 'sso_providers.id', 'sso_identities.provider_id')
    .innerJoin('users', 'users.id', 'sso_identities.user_id')
    .select(['sso_identities.id', 'users.email as name', 'sso_providers.org_id as orgId'])
  const members = db
    .selectFrom('organization_memberships as m')
    .innerJoin('users', 'users.id', 'm.user_id')
    .select(['m.id', 'users.email as name', 'm.org_id as orgId'])
    .where(membershipIsInForce)
  const partners = db
    .selectFrom('partner_memberships as m')
    .innerJoin('users', 'users.id', 'm.user_id')
    .select(['m.id', 'users.email as name'])
    .where(membershipIsInForce)
  const agents = db
    .selectFrom('devices')
    .select(['id', 'hostname as name', 'org_id as orgId'])
    .where('status', '!=', 'decommissioned')
  const administrators = db
    .selectFrom('users')
    .select(['id', 'email as name'])
    .where('status', '=', 'active')
    .where('is_system', '=', 1)
  const sorted = (rows: readonly { id: string; name: string; orgId?: string | null }[]): RestoredAccess[] =>
    rows
      .map(({ id, name, orgId = null }) => ({ id, name, orgId }))
      .sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
  return {
    administrators: sorted(await administrators.execute()),
    agents: sorted(await agents.execute()),
    'api-keys': sorted(await keys.execute()),
    'enrollment-keys': sorted(await enrollment.execute()),
    invitations: sorted(await invitations.execute()),
    memberships: sorted([...(await members.execute()), ...(await partners.execute())]),
    'recovery-codes': sorted(await codes.execute()),
    'sso-links': sorted(await links.execute()),
    'sso-providers': sorted(await providers.execute()),
    'trust-policies': sorted(await policies.execute()),
  }
}

/** How much is valid again that may have been ended since the backup. */
export type RestoredAccessCounts = {
  administrators: number
  users: number
  memberships: number
  invitations: number
  recoveryCodes: number
  apiKeys: number
  enrollmentKeys: number
  ssoProviders: number
  ssoLinks: number
  trustPolicies: number
  agents: number
}

export const countRestoredAccess = async (
  db: Db,
  revived: Awaited<ReturnType<typeof listRestoredAccess>>,
): Promise<RestoredAccessCounts> => ({
  administrators: revived.administrators.length,
  users: await countRowsOf(db.selectFrom('users').where('status', '=', 'active')),
  memberships: revived.memberships.length,
  invitations: revived.invitations.length,
  // Listed by the people who have some.
  recoveryCodes: await countRowsOf(db.selectFrom('recovery_codes').where('used_at', 'is', null)),
  apiKeys: revived['api-keys'].length,
  enrollmentKeys: revived['enrollment-keys'].length,
  ssoProviders: revived['sso-providers'].length,
  ssoLinks: revived['sso-links'].length,
  trustPolicies: revived['trust-policies'].length,
  agents: revived.agents.length,
})

/** Ends all of a kind. */
export async function revokeAll(tx: Db, kind: RevocableKind, now: Instant): Promise<void> {
  switch (kind) {
    case 'agents':
      // No token has this hash, and no machine gets another by its key.
      await tx
        .updateTable('devices')
        .set((eb) => ({ token_hash: eb(eb.val('ended '), '||', eb.ref('id')), watchdog_token_hash: null }))
        .execute()
      await tx.deleteFrom('agent_rotations').execute()
      await tx.deleteFrom('agent_keys').execute()
      return
    case 'api-keys':
      return revokeApiKeys(tx, systemScope)
    case 'enrollment-keys':
      return expireEnrollmentKeys(tx, systemScope, now)
    case 'invitations':
      await tx
        .updateTable('invitations')
        .set({ expires_at: now })
        .where('accepted_at', 'is', null)
        .where('expires_at', '>', now)
        .execute()
      return
    case 'recovery-codes':
      await tx.deleteFrom('recovery_codes').execute()
      return
    case 'sso-links':
      // At the next sign-in their people are found by their e-mail address.
      await tx.deleteFrom('sso_identities').execute()
      return
    case 'sso-providers':
      // No sessions have to be ended: a backup has none.
      await tx
        .updateTable('sso_providers')
        .set({ status: 'inactive', updated_at: now })
        .where('status', '!=', 'inactive')
        .execute()
      return
    case 'trust-policies':
      await tx
        .updateTable('trust_policies')
        .set({ status: 'inactive', updated_at: now })
        .where('status', '=', 'active')
        .execute()
  }
}
