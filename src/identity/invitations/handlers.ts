import type { Cipher } from '../../core/cipher.ts'
import { invalid, Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import { type Instant, later } from '../../core/time.ts'
import { type HandlersOf, inSteps, type UserCaller } from '../../handler.ts'
import { addedToTenant, invitation } from '../../messages/letters.ts'
import { inviteLink, loginLink } from '../../messages/links.ts'
import { queueLetter } from '../../messages/queue.ts'
import { isUniqueViolation } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import { findGrants, findMembership, joinOrganization, joinPartner } from '../memberships.ts'
import { hashPassword } from '../password.ts'
import { checkStrength } from '../passwords/strength.ts'
import { isFactorDemanded } from '../principal.ts'
import { checkMayGrant } from '../roles/rules.ts'
import { findRole } from '../roles/store.ts'
import type { Tenant } from '../rules.ts'
import { type Granted, grantSession } from '../sessions/grant.ts'
import { identityOf, signedIn, signsIn } from '../sessions/identity.ts'
import { recordLogin } from '../sessions/store.ts'
import { beginSession } from '../sessions/tenants.ts'
import { type AccessTokens, newToken, tokenHash } from '../sessions/tokens.ts'
import { isSsoOnly } from '../sso-only.ts'
import { findUser, findUserByEmail, insertUserOnce, type User } from '../store.ts'
import { getTenant, tenantNamed } from '../tenant.ts'
import { heldBy, isWithin } from '../users/memberships.ts'
import { checkWithinReach, orgOfTenant } from '../users/rules.ts'
import { checkMayTouch, findTarget, membershipOf } from '../users/targets.ts'
import { orgReach, partnerReach } from '../users/tenants.ts'
import type { acceptance, invitations, NewInvitation } from './contract.ts'
import { type Invitation, invitationDays, invitationSeconds, refused, stateOf } from './rules.ts'
import * as store from './store.ts'

/** What letters need. `real`: they leave the machine. */
export type Post = { cipher: Cipher; mailer: { readonly real: boolean }; publicUrl: () => string }

type Accept = (typeof acceptance)['acceptInvite']

/** Adds the membership. @throws user_exists, invalid_request */
async function join(
  db: Db,
  scope: Scope,
  { tenant, userId, body }: { tenant: Tenant; userId: string; body: NewInvitation },
  now: Instant,
): Promise<void> {
  const { roleId, orgAccess, orgIds, siteIds, deviceGroupIds } = body
  const wanted = { orgAccess, orgIds, siteIds, deviceGroupIds }
  const whole = { orgAccess: 'none', orgIds: null, siteIds: null, deviceGroupIds: null } as const
  const taken = (error: unknown): never => {
    throw isUniqueViolation(error) ? new Problem('user_exists') : error
  }
  if (tenant.kind === 'partner') {
    const reach = await partnerReach(db, scope, tenant.partnerId, wanted, whole)
    const orgs = reach.orgAccess === 'all' ? 'all' : reach.orgIds
    await joinPartner(db, { ...tenant, userId, roleId, orgs }, now).catch(taken)
    return
  }
  const reach = await orgReach(db, scope, tenant.orgId, wanted, whole)
  checkWithinReach(scope, { siteIds: reach.siteIds, deviceGroupIds: reach.groupIds })
  await joinOrganization(db, { ...tenant, userId, roleId, ...reach }, now).catch(taken)
}

/**
 * Queues the letter. Who has no password yet gets a link to set it; everybody else is told to sign in. The
 * link is shown to the inviter only while no mail leaves, and only when the account is theirs alone: else it
 * would let them into tenants that invited the same person.
 */
async function send(
  db: Db,
  post: Post,
  { user, tenant, caller, now }: { user: User; tenant: Tenant; caller: UserCaller; now: Instant },
): Promise<{ inviteEmailSent: boolean; inviteUrl?: string }> {
  const { email: to, name } = user
  const expiresAt = later(now, invitationSeconds)
  const base = post.publicUrl()
  const letter = { to, name, inviter: caller.name, tenant: await store.nameOfTenant(db, tenant) }
  const inviteEmailSent = post.mailer.real
  if (user.status !== 'invited' || user.passwordHash !== null) {
    const url = loginLink(base)
    await queueLetter(db, post.cipher, addedToTenant({ ...letter, url }), now, expiresAt)
    return { inviteEmailSent }
  }
  const token = newToken()
  await store.saveInvitation(db, { userId: user.id, tenant, tokenHash: tokenHash(token), expiresAt }, now)
  const url = inviteLink(base, token)
  await queueLetter(db, post.cipher, invitation({ ...letter, url, days: invitationDays }), now, expiresAt)
  const shown = !inviteEmailSent && (await isWithin(db, caller.scope, user))
  return { inviteEmailSent, ...(shown && { inviteUrl: url }) }
}

export const invitationHandlers = (post: Post): HandlersOf<typeof invitations> => ({
  async invite({ db, scope, body, caller, now, note }) {
    const tenant = await getTenant(db, scope, body)
    const role = await findRole(db, tenant, body.roleId)
    const message = 'Invalid role for this scope'
    if (!role) throw invalid([{ path: 'body.roleId', message }], message)
    checkMayGrant(caller.permissions, (await findGrants(db, role.id)).permissions)

    const { email, name } = body
    await insertUserOnce(db, { id: newId(), email, name, passwordHash: null, status: 'invited' }, now)
    const user = (await findUserByEmail(db, email))!
    await join(db, scope, { tenant, userId: user.id, body }, now)
    const sent = await send(db, post, { user, tenant, caller, now })
    note({ orgId: orgOfTenant(tenant), resourceName: user.email, details: { roleName: role.name } })
    return {
      id: user.id,
      email: user.email,
      name: user.name,
      status: user.status as 'active' | 'invited' | 'disabled',
      roleId: role.id,
      ...sent,
    }
  },

  async resendInvite({ db, scope, body, caller, now, note }) {
    const asked = await tenantNamed(db, scope, body)
    const target = await findTarget(db, scope, body.userId, asked, 'body')
    const { tenant } = membershipOf(target)
    const user = (await findUser(db, body.userId))!
    const message = 'User is not in invited status'
    if (user.status !== 'invited') throw invalid([{ path: 'body.userId', message }], message)
    // The link may be shown: it must not open an account that can do more than the caller.
    await checkMayTouch(db, caller, target.account, await heldBy(db, scope, [user.id]))
    if (user.passwordHash !== null) {
      throw new Problem('conflict', 'The account has a password already: set its status to active')
    }
    const sent = await send(db, post, { user, tenant, caller, now })
    note({ orgId: orgOfTenant(tenant), resourceId: user.id, resourceName: user.email })
    return { success: true, ...sent }
  },
})

export const acceptanceHandlers = (keys: {
  access: AccessTokens
  mfaOn: boolean
}): HandlersOf<typeof acceptance> => ({
  async previewInvite({ db, body, now }) {
    const found = await store.findInvitation(db, tokenHash(body.token))
    const state = stateOf(found, now)
    if (state === 'accepted') throw new Problem('invite_accepted')
    if (!found || state === 'unknown') throw new Problem('invite_not_found')
    const name = await store.nameOfTenant(db, found.tenant)
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
      granted: Granted
      enters: boolean
      demanded: boolean
    }
  >({
    async prepare({ storage, body, now }) {
      const hash = tokenHash(body.token)
      const found = await store.findInvitation(storage.read, hash)
      const state = stateOf(found, now)
      if (!found || state !== 'open') throw refused(state === 'accepted' ? 'accepted' : 'unknown')
      await checkStrength(body.password, 'body.password', [found.email, found.name])
      const user = (await findUser(storage.read, found.userId))!
      const membership = await findMembership(storage.read, user.id, found.tenant)
      const ssoOnly = await isSsoOnly(storage.read, user.id, found.tenant)
      const demanded = keys.mfaOn && (await isFactorDemanded(storage.read, user, found.tenant))
      return {
        found,
        hash,
        passwordHash: await hashPassword(body.password),
        user,
        granted: await grantSession(
          keys.access,
          user,
          { context: found.tenant, mfa: false, ssoProviderId: null },
          now,
        ),
        enters: membership?.usable === true && !ssoOnly,
        demanded,
      }
    },
    async run({ db, now, note }, { found, hash, passwordHash, user, granted, enters, demanded }) {
      if (!(await store.takeInvitation(db, found, hash, now))) throw refused('accepted')
      if (!(await store.activate(db, user.id, passwordHash, now))) throw refused('accepted')
      note({ orgId: orgOfTenant(found.tenant), ...signsIn(user) })
      const active = { ...user, status: 'active' }
      if (!enters || user.mfaMethod !== null) {
        const message = 'Account activated. Please sign in manually.'
        return { user: identityOf(active), tokens: null, mfaRequired: false, message }
      }
      await beginSession(db, granted.session, now)
      await recordLogin(db, user.id, now)
      return signedIn({ ...active, lastLoginAt: now }, granted, demanded)
    },
  }),
})
