import type { Cipher } from '../../core/cipher.ts'
import { foldEmail } from '../../core/email.ts'
import { invalid, Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import { type CountEvent, type HandlersOf, inSteps } from '../../handler.ts'
import { forgotLink, inviteLink, loginLink } from '../../messages/links.ts'
import { queueMail } from '../../messages/queue.ts'
import { addedToTenant, invitation } from '../../messages/templates.ts'
import { violatedUniqueKey } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import {
  acceptMembership,
  findGrants,
  findMembership,
  joinOrganization,
  joinPartner,
} from '../memberships.ts'
import { hashPassword } from '../password-hash.ts'
import { checkStrength } from '../passwords/strength.ts'
import { requiresMfaEnrollment } from '../principal.ts'
import { checkMayGrantPeople } from '../roles/rules.ts'
import { findRole } from '../roles/store.ts'
import { scopeOfTenant, type Tenant } from '../rules.ts'
import { type GrantedSession, grantSession } from '../sessions/grant.ts'
import { loginFacts, toIdentity, toSignInReply } from '../sessions/identity.ts'
import { recordLogin } from '../sessions/store.ts'
import { startSession } from '../sessions/tenants.ts'
import { type AccessTokens, newToken, tokenHash } from '../sessions/tokens.ts'
import { isSsoOnly } from '../sso-only.ts'
import { findUser, findUserByEmail, insertUserOnce, type User } from '../store.ts'
import { findNamedTenant, getTenant } from '../tenant.ts'
import { resolveOrgAccess, resolvePartnerAccess } from '../users/access.ts'
import { isOnlyInvitedInScope } from '../users/account-scope.ts'
import { listMembershipRecords } from '../users/memberships.ts'
import {
  checkWithinAccess,
  detailsOfTenant,
  idOfTenant,
  membershipStatus,
  orgOfTenant,
} from '../users/rules.ts'
import { clearUnprovedFactors } from '../users/store.ts'
import { checkMayManageUser, findTarget, getMembership } from '../users/targets.ts'
import type { acceptance, invitations, NewInvitation } from './contract.ts'
import {
  type Invitation,
  invalidInvitation,
  invitationDays,
  invitationSeconds,
  invitationState,
} from './rules.ts'
import * as store from './store.ts'

/** Dependencies for sending mail. `real`: mail leaves the machine. */
export type InvitationDependencies = {
  cipher: Cipher
  mailer: { readonly real: boolean }
  publicUrl: () => string
}

type Entries = typeof invitations

/**
 * The limit of the address comes first, so repeated invitations to one address do not use up the limit of
 * others.
 */
async function limitLetters(
  limit: CountEvent,
  caller: { id: string },
  tenant: Tenant,
  address: string,
): Promise<void> {
  const place = idOfTenant(tenant)
  await limit('INVITE_ADDRESS', `${place} ${foldEmail(address)}`)
  await limit('INVITE_INVITER', caller.id)
  await limit('INVITE_TENANT', place)
}

type Accept = (typeof acceptance)['acceptInvite']

/** Adds a membership that its holder has to accept. @throws user_exists, invalid_request */
async function createMembership(
  db: Db,
  scope: Scope,
  { tenant, userId, body }: { tenant: Tenant; userId: string; body: NewInvitation },
  now: Instant,
): Promise<void> {
  const { roleId, orgAccess, orgIds, siteIds, deviceGroupIds } = body
  const wanted = { orgAccess, orgIds, siteIds, deviceGroupIds }
  const invited = { acceptedBy: null, invited: { name: body.name, email: body.email } }
  const whole = { orgAccess: 'none', orgIds: null, siteIds: null, deviceGroupIds: null } as const
  const taken = (error: unknown): never => {
    throw violatedUniqueKey(error) ? new Problem('user_exists') : error
  }
  if (tenant.kind === 'partner') {
    const reach = await resolvePartnerAccess(db, scope, tenant.partnerId, wanted, whole)
    const orgs = reach.orgAccess === 'all' ? 'all' : reach.orgIds
    await joinPartner(db, { ...tenant, userId, roleId, orgs, ...invited }, now).catch(taken)
    return
  }
  const reach = await resolveOrgAccess(db, scope, tenant.orgId, wanted, whole)
  checkWithinAccess(scope, { siteIds: reach.siteIds, deviceGroupIds: reach.groupIds })
  await joinOrganization(db, { ...tenant, userId, roleId, ...reach, ...invited }, now).catch(taken)
}

/**
 * Queues the mail. A recipient without a password gets a link to set it, which accepts this invitation; any
 * other is asked to sign in and accept. The link is returned to the inviter only while no mail leaves the
 * machine, and only when no other tenant invited the same person: otherwise it would give the inviter what
 * others granted.
 */
async function sendInvitation(
  db: Db,
  post: InvitationDependencies,
  { user, tenant, caller, now }: { user: User; tenant: Tenant; caller: { name: string }; now: Instant },
): Promise<{ inviteEmailSent: boolean; inviteUrl?: string }> {
  const { email: to, name } = user
  const expiresAt = addSeconds(now, invitationSeconds)
  const base = post.publicUrl()
  const mail = { to, name, inviter: caller.name, tenant: await store.findTenantName(db, tenant) }
  const inviteEmailSent = post.mailer.real
  if (user.passwordHash !== null) {
    const proof = user.emailProvedAt === null ? { proof: forgotLink(base) } : {}
    const notice = addedToTenant({ ...mail, ...proof, url: loginLink(base) })
    await queueMail(db, post.cipher, notice, now, expiresAt)
    return { inviteEmailSent }
  }
  const token = newToken()
  const shown = !inviteEmailSent && (await isOnlyInvitedInScope(db, scopeOfTenant(tenant), user))
  const link = { tokenHash: tokenHash(token), expiresAt, shown }
  await store.saveInvitation(db, { userId: user.id, tenant, ...link }, now)
  const url = inviteLink(base, token)
  await queueMail(db, post.cipher, invitation({ ...mail, url, days: invitationDays }), now, expiresAt)
  return { inviteEmailSent, ...(shown && { inviteUrl: url }) }
}

export const invitationHandlers = (post: InvitationDependencies): HandlersOf<typeof invitations> => ({
  invite: inSteps<Entries['invite'], Tenant>({
    async prepare({ storage, scope, body, caller, limit }) {
      const tenant = await getTenant(storage.read, scope, body)
      await limitLetters(limit, caller, tenant, body.email)
      return tenant
    },
    async run({ db, scope, body, caller, now, note, quota, isRehearsal }, tenant) {
      const role = await findRole(db, tenant, body.roleId)
      const message = 'Invalid role for this scope'
      if (!role) throw invalid([{ path: 'body.roleId', message }], message)
      checkMayGrantPeople(caller, (await findGrants(db, role.id)).permissions)

      await quota(tenant)
      const { email, name } = body
      await insertUserOnce(db, { id: newId(), email, name, passwordHash: null, status: 'invited' }, now)
      const user = (await findUserByEmail(db, email))!
      await createMembership(db, scope, { tenant, userId: user.id, body }, now)
      // A plan leaves the links of other tenants alone, as they would stay locked until it ends.
      if (!isRehearsal) await store.voidOtherInvitations(db, user.id, tenant)
      const sent = await sendInvitation(db, post, { user: { ...user, name }, tenant, caller, now })
      note({
        orgId: orgOfTenant(tenant),
        resourceName: email,
        details: { roleName: role.name, ...detailsOfTenant(tenant) },
      })
      // The reply does not reveal whether the address has an account elsewhere, or its name.
      return { id: user.id, email, name, status: 'invited' as const, roleId: role.id, ...sent }
    },
  }),

  resendInvite: inSteps<Entries['resendInvite'], void>({
    async prepare({ storage, scope, body, caller, limit }) {
      const asked = await findNamedTenant(storage.read, scope, body)
      const target = await findTarget(storage.read, scope, body.userId, asked, 'body')
      await limitLetters(limit, caller, getMembership(target).tenant, target.account.email)
    },
    async run({ db, scope, body, caller, now, note }) {
      const asked = await findNamedTenant(db, scope, body)
      const target = await findTarget(db, scope, body.userId, asked, 'body')
      const { tenant } = getMembership(target)
      const user = (await findUser(db, body.userId))!
      const message = 'User is not in invited status'
      const membership = getMembership(target)
      if (membershipStatus(target.account, membership) !== 'invited') {
        throw invalid([{ path: 'body.userId', message }], message)
      }
      // The link may be returned to the caller: it must not open an account that can do more than the caller.
      await checkMayManageUser(db, caller, target.account, await listMembershipRecords(db, scope, [user.id]))
      if (user.passwordHash !== null && user.status === 'invited') {
        throw new Problem('conflict', 'The account has a password already: set its status to active')
      }
      const name = membership.invitedName ?? user.name
      const sent = await sendInvitation(db, post, { user: { ...user, name }, tenant, caller, now })
      note({ orgId: orgOfTenant(tenant), resourceId: user.id, resourceName: user.email })
      return { success: true, ...sent }
    },
  }),
})

export const acceptanceHandlers = (keys: {
  access: AccessTokens
  mfaOn: boolean
}): HandlersOf<typeof acceptance> => ({
  async previewInvite({ db, body, now }) {
    const found = await store.findInvitation(db, tokenHash(body.token))
    const state = invitationState(found, now)
    if (state === 'accepted') throw new Problem('invite_accepted')
    if (!found || state === 'unknown') throw new Problem('invite_not_found')
    const name = await store.findTenantName(db, found.tenant)
    const { email, expiresAt } = found
    const named = found.tenant.kind === 'partner' ? { partnerName: name } : { orgName: name }
    return { email, name: found.name, ...named, expiresAt }
  },

  acceptInvite: inSteps<
    Accept,
    {
      found: Invitation
      hash: string
      passwordHash: string
      user: User
      granted: GrantedSession
      enters: boolean
      demanded: boolean
    }
  >({
    async prepare({ storage, body, now }) {
      const hash = tokenHash(body.token)
      const found = await store.findInvitation(storage.read, hash)
      const state = invitationState(found, now)
      if (!found || state !== 'open') throw invalidInvitation(state === 'accepted' ? 'accepted' : 'unknown')
      const membership = await findMembership(storage.read, found.userId, found.tenant)
      if (!membership || membership.disabled) throw invalidInvitation('unknown')
      await checkStrength(body.password, 'body.password', [found.email, found.name])
      const user = (await findUser(storage.read, found.userId))!
      const ssoOnly = await isSsoOnly(storage.read, user.id, found.tenant)
      const demanded = keys.mfaOn && (await requiresMfaEnrollment(storage.read, user, found.tenant))
      return {
        found,
        hash,
        passwordHash: await hashPassword(body.password),
        user,
        granted: await grantSession(
          keys.access,
          // Factors that others set up are cleared, which ends their sessions.
          user.emailProvedAt === null ? { ...user, mfaEpoch: user.mfaEpoch + 1 } : user,
          { context: found.tenant, mfa: false, ssoProviderId: null },
          now,
        ),
        enters: (membership.usable || membership.invited) && !ssoOnly,
        demanded,
      }
    },
    async run({ db, now, note }, { found, hash, passwordHash, user, granted, enters, demanded }) {
      if (!(await store.consumeInvitation(db, found, hash, now))) throw invalidInvitation('accepted')
      if (!(await store.activateAccount(db, user.id, passwordHash, !found.shown, now)))
        throw invalidInvitation('accepted')
      await acceptMembership(db, user.id, found.tenant, 'holder', now)
      await clearUnprovedFactors(db, user, now)
      note({ orgId: orgOfTenant(found.tenant), ...loginFacts(user) })
      const active = { ...user, status: 'active' }
      if (!enters || user.mfaMethod !== null) {
        const message = 'Account activated. Please sign in manually.'
        return { user: toIdentity(active), tokens: null, mfaRequired: false, message }
      }
      await startSession(db, granted.session, now)
      await recordLogin(db, user.id, now)
      return toSignInReply({ ...active, lastLoginAt: now }, granted, demanded)
    },
  }),
})
