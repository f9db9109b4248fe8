import { invalid, Problem } from '../../core/errors.ts'
import { hasPermission, type Permission } from '../../core/permissions.ts'
import type { Scope } from '../../core/scope.ts'
import { isFullAdmin, narrowedAccess, type Tenant } from '../rules.ts'
import type { Membership, User, UserChange } from './contract.ts'

/** A membership with all its fields. */
export type MembershipRecord = {
  id: string
  userId: string
  tenant: Tenant
  roleId: string
  roleName: string
  orgAccess: 'all' | 'selected' | 'none' | null
  orgIds: string[] | null
  siteIds: string[] | null
  deviceGroupIds: string[] | null
  disabledAt: string | null
  /** null: an invitation that its holder has not accepted; it grants nothing. */
  acceptedAt: string | null
  acceptedBy: 'holder' | 'provider' | null
  /** Invited by an identity provider, not by a person. */
  provisioned: boolean
  /** As the inviter typed it. */
  invitedName: string | null
  invitedEmail: string | null
  createdAt: string
}

/** An account without its credentials. */
export type Account = {
  id: string
  email: string
  name: string
  status: string
  avatarUrl: string | null
  isSystem: boolean
  mfaMethod: string | null
  phoneNumber: string | null
  phoneVerified: boolean
  lastLoginAt: string | null
  passwordChangedAt: string | null
  createdAt: string
  updatedAt: string
}

/** Whether a membership with these permissions administers its tenant without limits on its access. */
export const isAdministrator = (
  one: Pick<MembershipRecord, 'tenant' | 'orgAccess' | 'siteIds' | 'deviceGroupIds'>,
  permissions: ReadonlySet<string>,
): boolean =>
  isFullAdmin(one.tenant.kind, permissions) &&
  (one.tenant.kind === 'partner'
    ? one.orgAccess === 'all'
    : one.siteIds === null && one.deviceGroupIds === null)

/** A user cannot change, remove, disable or reset a user who has permissions they lack. @throws forbidden */
export function checkMayManage(held: ReadonlySet<string>, theirs: Iterable<string>): void {
  const lacking = [...theirs].filter((pair) => !hasPermission(held, pair as Permission)).sort()
  if (lacking.length === 0) return
  throw new Problem('forbidden', 'This user holds permissions that you do not', { details: { lacking } })
}

/** @throws forbidden */
export function checkNotSelf(caller: { id: string }, userId: string, message: string): void {
  if (caller.id === userId) throw new Problem('forbidden', message)
}

/**
 * A member limited to some sites or groups cannot grant or change access beyond these.
 * @throws site_access_denied
 */
export function checkWithinAccess(
  scope: Scope,
  one: { siteIds: readonly string[] | null; deviceGroupIds: readonly string[] | null },
): void {
  if (scope.kind !== 'organization') return
  const within = (mine: readonly string[] | null, theirs: readonly string[] | null) =>
    mine === null || theirs?.every((id) => mine.includes(id)) === true
  if (within(scope.siteIds, one.siteIds) && within(scope.groupIds, one.deviceGroupIds)) return
  throw new Problem('site_access_denied', narrowedAccess)
}

/** @throws forbidden when the change affects an account that other tenants share */
export function checkMayChangeAccount(change: UserChange, whole: boolean): void {
  if (change.name === undefined || whole) return
  throw new Problem('forbidden', 'This account belongs to other tenants as well')
}

/** An invitation by an identity provider that its holder has not accepted. */
export const isProviderInvitation = (one: Pick<MembershipRecord, 'provisioned' | 'acceptedAt'>): boolean =>
  one.provisioned && one.acceptedAt === null

/** Whether the account was never usable: it has only what its invitations gave it. */
export const isNeverUsed = (account: Pick<Account, 'status'>): boolean => account.status === 'invited'

/**
 * The status of a membership in its tenant. A disabled account cannot be used in any tenant, but a tenant whose
 * invitation is pending must not learn that, unless the account is wholly in its scope (`whole`).
 */
export function membershipStatus(
  account: Pick<Account, 'status'>,
  one: MembershipRecord | undefined,
  whole = false,
): User['status'] {
  if (!one) return account.status as User['status']
  if (one.disabledAt !== null) return 'disabled'
  if (account.status === 'disabled' && (whole || one.acceptedAt !== null)) return 'disabled'
  return one.acceptedAt === null || isNeverUsed(account) ? 'invited' : 'active'
}

/** The tenants of these memberships, in lock order. */
export const sortedTenants = (held: readonly MembershipRecord[]): Tenant[] =>
  held
    .map(({ tenant }) => tenant)
    .sort((a, b) =>
      b.kind === a.kind ? (idOfTenant(a) < idOfTenant(b) ? -1 : 1) : a.kind === 'organization' ? -1 : 1,
    )

export const idOfTenant = (tenant: Tenant): string =>
  tenant.kind === 'partner' ? tenant.partnerId : tenant.orgId

/** The organization whose audit log gets the entry; null for a partner. */
export const orgOfTenant = (tenant: Tenant | undefined): string | null =>
  tenant?.kind === 'organization' ? tenant.orgId : null

/** What the entry says besides: members of all partners are in the audit log of the service. */
export const detailsOfTenant = (tenant: Tenant | undefined): { partnerId?: string } =>
  tenant?.kind === 'partner' ? { partnerId: tenant.partnerId } : {}

export const isSameTenant = (a: Tenant, b: Tenant): boolean =>
  a.kind === b.kind && idOfTenant(a) === idOfTenant(b)

/**
 * Selects a membership: the only one, the partner's, or the requested one.
 * @throws invalid_request when several are possible
 */
export function selectMembership(
  held: readonly MembershipRecord[],
  requested: Tenant | undefined,
  part: 'query' | 'body' = 'query',
): MembershipRecord | undefined {
  if (requested) return held.find(({ tenant }) => isSameTenant(tenant, requested))
  const partner = held.filter(({ tenant }) => tenant.kind === 'partner')
  const likely = partner.length > 0 ? partner : held
  if (likely.length <= 1) return likely[0]
  const message = 'The user is a member of several tenants: name one'
  throw invalid([{ path: `${part}.orgId`, message }], message)
}

const noMembership = {
  partnerId: null,
  orgId: null,
  roleId: null,
  roleName: null,
  orgAccess: null,
  orgIds: null,
  siteIds: null,
  deviceGroupIds: null,
}

function membershipFields(held: MembershipRecord | undefined): Pick<User, keyof typeof noMembership> {
  if (!held) return noMembership
  const { tenant, roleId, roleName, orgAccess, orgIds, siteIds, deviceGroupIds } = held
  return {
    partnerId: tenant.kind === 'partner' ? tenant.partnerId : null,
    orgId: orgOfTenant(tenant),
    roleId,
    roleName,
    orgAccess,
    orgIds,
    siteIds,
    deviceGroupIds,
  }
}

/** Profile of an account not wholly in scope: only what the inviter typed. */
function invitedProfile({ id, email }: Account, held: MembershipRecord) {
  const address = held.invitedEmail ?? email
  return {
    id,
    email: address,
    name: held.invitedName ?? address,
    avatarUrl: null,
    lastLoginAt: null,
    createdAt: held.createdAt,
    updatedAt: held.createdAt,
    mfaEnabled: null,
    mfaMethod: null,
  }
}

/** A person as shown in a tenant. `whole`: the account is wholly in the caller's scope. */
export function toUser(account: Account, held: MembershipRecord | undefined, whole: boolean): User {
  const status = membershipStatus(account, held, whole)
  if (held && !whole) return { ...invitedProfile(account, held), status, ...membershipFields(held) }
  const { id, email, name, avatarUrl, lastLoginAt, createdAt, updatedAt } = account
  const mfaMethod = account.mfaMethod as User['mfaMethod']
  const profile = { id, email, name, avatarUrl, lastLoginAt, createdAt, updatedAt }
  return { ...profile, status, mfaEnabled: mfaMethod !== null, mfaMethod, ...membershipFields(held) }
}

export const toMembership = (held: MembershipRecord): Membership => ({
  ...membershipFields(held),
  status: held.disabledAt !== null ? 'disabled' : held.acceptedAt === null ? 'invited' : 'active',
  createdAt: held.createdAt,
})
