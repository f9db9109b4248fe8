import { invalid, Problem } from '../../core/errors.ts'
import { systemScope } from '../../core/scope.ts'
import type { HandlersOf } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { acceptMembership, findMembership } from '../memberships.ts'
import type { Tenant } from '../rules.ts'
import { checkNotSsoSession } from '../sessions/rules.ts'
import { getUser } from '../store.ts'
import { listMembershipRecords } from '../users/memberships.ts'
import { isSameTenant, type MembershipRecord, orgOfTenant } from '../users/rules.ts'
import type { myInvitations as contract } from './contract.ts'
import { findTenantName } from './store.ts'

/** A person's open invitations, and memberships that only an identity provider has accepted. */
async function listPending(db: Db, userId: string): Promise<MembershipRecord[]> {
  const held = (await listMembershipRecords(db, systemScope, [userId])).filter(
    (one) => one.disabledAt === null && one.acceptedBy !== 'holder',
  )
  const all = await Promise.all(
    held.map(async (one) => ({ one, found: await findMembership(db, userId, one.tenant) })),
  )
  return all.flatMap(({ one, found }) => (found?.invited || found?.usable ? [one] : []))
}

/** Handlers for invitations to the caller's own account. */
export const myInvitations: HandlersOf<typeof contract> = {
  async myInvitations({ db, caller }) {
    // A provider speaks for one organization and must learn nothing of others.
    if (caller.ssoProviderId !== null) return { data: [] }
    const held = await listPending(db, caller.id)
    const data = await Promise.all(
      held.map(async ({ tenant, roleName, createdAt }) => ({
        partnerId: tenant.kind === 'partner' ? tenant.partnerId : null,
        orgId: orgOfTenant(tenant),
        name: await findTenantName(db, tenant),
        roleName,
        invitedAt: createdAt,
      })),
    )
    return { data }
  },

  /** Requires the person's own proof: their password, and their factor if they have one. */
  async acceptMine({ db, caller, body: { orgId, partnerId }, now, note }) {
    if (orgId === undefined && partnerId === undefined) {
      throw invalid([{ path: 'body', message: 'must name an organization or a partner' }])
    }
    checkNotSsoSession(caller)
    if (caller.mfaEnabled && !caller.mfa) throw new Problem('mfa_required')
    const tenant: Tenant =
      orgId === undefined ? { kind: 'partner', partnerId: partnerId! } : { kind: 'organization', orgId }
    const held = await listPending(db, caller.id)
    if (!held.some((one) => isSameTenant(one.tenant, tenant)))
      throw new Problem('invite_not_found', 'You have no open invitation there')
    // The person who registered an address, or was shown the link to it, may not be the one who reads its mail.
    if ((await getUser(db, caller.id)).emailProvedAt === null) throw new Problem('email_unproved')
    await acceptMembership(db, caller.id, tenant, 'holder', now)
    note({ orgId: orgOfTenant(tenant), resourceId: caller.id, resourceName: caller.email })
    return { success: true }
  },
}
