import { domainToASCII } from 'node:url'
import { z } from 'zod'
import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { missingPermissions } from '../../core/permissions.ts'
import { safeParse } from '../../core/schema.ts'
import { truncateStorable } from '../../core/text.ts'
import type { Instant } from '../../core/time.ts'
import type { Call } from '../../handler.ts'
import { voidInvitation } from '../../identity/invitations/store.ts'
import { acceptMembership, findGrants, findMembership, joinOrganization } from '../../identity/memberships.ts'
import { findRole } from '../../identity/roles/store.ts'
import type { Membership } from '../../identity/rules.ts'
import { findUser, findUserByEmail, insertUserOnce, type User } from '../../identity/store.ts'
import { violatedUniqueKey } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import { lockTenantInUse } from '../../tenancy/access.ts'
import type { AssertedIdentity } from '../asserted-identity.ts'
import { type FailureCode, SsoFailure } from '../failures.ts'
import type { ProviderRecord } from '../rules.ts'
import type { ssoSignIn } from './contract.ts'
import { activateInvited, findIdentity, type Identity, saveIdentity } from './store.ts'

/** An admitted user, and what was created for them. */
export type AdmittedUser = {
  user: Pick<User, 'id' | 'email' | 'name'>
  made: 'account' | 'link' | 'nothing'
}

/** A user with an account elsewhere who is now invited, and not admitted yet. */
export type InvitedUser = { userId: string; email: string; roleName: string; made: 'invitation' }

/** The outcome of a sign-in, decided before anything is changed. */
export type SignInAdmission =
  | { kind: 'known'; user: User; invited: boolean; link: Identity | undefined; email: string }
  | ({ kind: 'new' } & Newcomer)
  | ({ kind: 'elsewhere'; user: User } & Newcomer)

type Newcomer = { email: string; name: string; role: { id: string; name: string } }

/**
 * Decides which user an asserted identity is. A user is found by the provider's permanent identifier. The
 * address is used only the first time, when it is not stated to be unverified and the user is already a member
 * of the organization: otherwise the operator of a provider could sign in as anyone.
 * @throws SsoFailure
 */
export async function decideAdmission(
  db: Db,
  provider: ProviderRecord,
  asserted: AssertedIdentity,
): Promise<SignInAdmission> {
  const email = emailOf(asserted, provider)
  checkDomain(email, provider.allowedDomains)
  const link = await findIdentity(db, { providerId: provider.id, externalId: asserted.subject })
  const linked = link && (await findUser(db, link.userId))
  if (!linked && !asserted.emailVerified) throw new SsoFailure('sso_email_unverified', email)
  const user = linked ?? (await findUserByEmail(db, email))
  if (!user)
    return { kind: 'new', ...(await decideNewcomer(db, provider, asserted, email, 'user_not_found')) }
  const { orgId } = provider
  const membership = await findMembership(db, user.id, { kind: 'organization', orgId })
  // A user who is linked but no member was removed here; the provider cannot undo that.
  if (!membership && !link) {
    return {
      kind: 'elsewhere',
      user,
      ...(await decideNewcomer(db, provider, asserted, email, 'no_org_access')),
    }
  }
  const { invited } = await checkMember(db, { user, email }, provider, membership)
  if (!link && (await findIdentity(db, { providerId: provider.id, userId: user.id }))) {
    throw new SsoFailure('sso_link_required', email)
  }
  return { kind: 'known', user, invited, link, email }
}

async function decideNewcomer(
  db: Db,
  provider: ProviderRecord,
  asserted: AssertedIdentity,
  email: string,
  otherwise: FailureCode,
): Promise<Newcomer> {
  const { autoProvision, defaultRoleId: roleId, orgId } = provider
  if (!autoProvision) throw new SsoFailure(otherwise, email)
  const role = roleId === null ? undefined : await findRole(db, { kind: 'organization', orgId }, roleId)
  if (!role) throw new SsoFailure('default_role_required', email)
  await checkWithinCeiling(db, provider, role.id)
  const name = truncateStorable(asserted.name ?? email.slice(0, email.lastIndexOf('@')), 255)
  return { email, name, role }
}

async function checkMember(
  db: Db,
  { user, email }: { user: User; email: string },
  provider: ProviderRecord,
  membership: Membership | undefined,
): Promise<Membership> {
  if (membership?.kind !== 'organization' || membership.disabled) {
    throw new SsoFailure('no_org_access', email)
  }
  // A provider cannot accept its own invitation: it would act for both sides.
  if (membership.invited && membership.provisioned) throw new SsoFailure('invitation_pending', email)
  if (user.status === 'disabled') throw new SsoFailure('account_inactive', user.email)
  await checkWithinCeiling(db, provider, membership.roleId)
  return membership
}

/** Checks the role's current permissions, whatever it granted when the user was linked or the role was chosen. */
async function checkWithinCeiling(db: Db, { vouches }: ProviderRecord, roleId: string): Promise<void> {
  const lacking = missingPermissions(new Set(vouches), (await findGrants(db, roleId)).permissions)
  if (lacking.length > 0) throw new SsoFailure('beyond_provider', lacking.join(', '))
}

const Address = z.email().max(255)

/** The error names the claims that exist: mostly one of them is the one to map. */
function emailOf({ email, profile }: AssertedIdentity, { attributeMapping }: ProviderRecord): string {
  const { success, data } = safeParse(Address, email)
  if (success) return data
  const all = Object.keys(profile).join(', ')
  const detail =
    email === undefined
      ? `"${attributeMapping.email}" is not among ${all}`.slice(0, 500)
      : `"${email.slice(0, 255)}" is none`
  throw new SsoFailure('sso_email_missing', detail)
}

function checkDomain(email: string, domains: string | null): void {
  const domain = email.slice(email.lastIndexOf('@') + 1)
  if (domains === null || domains.split(',').includes(domainToASCII(domain))) return
  throw new SsoFailure('domain_not_allowed', `${domain} is none of ${domains}`)
}

type CheckQuota = Call<typeof ssoSignIn.callback>['quota']

/** Admits a user, creating account and link if needed; or invites them. @throws SsoFailure */
export async function admit(
  db: Db,
  cipher: Cipher,
  {
    provider,
    asserted,
    now,
    quota,
  }: { provider: ProviderRecord; asserted: AssertedIdentity; now: Instant; quota: CheckQuota },
): Promise<AdmittedUser | InvitedUser> {
  const { id: providerId, orgId } = provider
  await checkInUse(db, orgId)
  const admission = await decideAdmission(db, provider, asserted)
  if (admission.kind !== 'known') await checkRoom(quota, orgId)
  if (admission.kind === 'elsewhere') return invite(db, orgId, admission, now)
  const { user, made } = await ensureAccount(db, provider, admission, now)
  const link = admission.kind === 'known' ? admission.link : undefined
  const { email } = admission
  await saveIdentity(db, cipher, {
    id: link?.id ?? newId(),
    providerId,
    userId: user.id,
    email,
    asserted,
    now,
  })
  return { user, made: made ? 'account' : link ? 'nothing' : 'link' }
}

async function ensureAccount(
  db: Db,
  { orgId }: ProviderRecord,
  admission: Exclude<SignInAdmission, { kind: 'elsewhere' }>,
  now: Instant,
): Promise<{ user: AdmittedUser['user']; made: boolean }> {
  if (admission.kind === 'known') {
    const { user, invited } = admission
    if (user.status === 'invited') await activateInvited(db, user.id, now)
    if (invited) {
      // Only in this organization: invitations of other tenants stay open, and their links stay valid.
      const tenant = { kind: 'organization', orgId } as const
      await acceptMembership(db, user.id, tenant, 'provider', now)
      await voidInvitation(db, user.id, tenant)
    }
    return { user, made: false }
  }
  const { email, name, role } = admission
  const user = { id: newId(), email, name, passwordHash: null }
  await insertUserOnce(db, user, now)
  // Another tenant invited them at the same moment: then this provider cannot decide that they belong here.
  if ((await findUserByEmail(db, email))?.id !== user.id) throw new SsoFailure('no_org_access', email)
  const invited = { name, email }
  const membership = {
    orgId,
    userId: user.id,
    roleId: role.id,
    siteIds: null,
    acceptedBy: 'provider' as const,
    invited,
  }
  await joinOrganization(db, membership, now)
  return { user, made: true }
}

/**
 * Invites a user who has an account already; it grants nothing before they accept. No mail is sent: otherwise a
 * provider could mail anyone. Links of other invitations stay valid.
 */
async function invite(
  db: Db,
  orgId: string,
  { user, email, name, role }: Extract<SignInAdmission, { kind: 'elsewhere' }>,
  now: Instant,
): Promise<InvitedUser> {
  const invited = { acceptedBy: null, invited: { name, email }, provisioned: true }
  const membership = { orgId, userId: user.id, roleId: role.id, siteIds: null, ...invited }
  await joinOrganization(db, membership, now).catch((error: unknown) => {
    // Another request invited them at the same moment.
    throw violatedUniqueKey(error) ? new SsoFailure('invitation_pending', email) : error
  })
  return { userId: user.id, email, roleName: role.name, made: 'invitation' }
}

async function checkRoom(quota: CheckQuota, orgId: string): Promise<void> {
  await quota({ orgId }).catch((error: unknown) => {
    throw error instanceof Problem ? new SsoFailure('organization_full') : error
  })
}

async function checkInUse(db: Db, orgId: string): Promise<void> {
  await lockTenantInUse(db, { orgId }).catch((error: unknown) => {
    throw error instanceof Problem ? new SsoFailure('tenant_inactive') : error
  })
}
