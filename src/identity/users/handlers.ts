import type { Cipher } from '../../core/cipher.ts'
import { assertNotEmptyChange, invalid, Problem } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { type HandlersOf, inSteps, type UserCaller } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { forgetMarks } from '../door/store.ts'
import { checkProvedLately } from '../factors/proof.ts'
import { voidInvitation } from '../invitations/store.ts'
import { acceptMembership, findGrants, reachDevices, reachOrgs } from '../memberships.ts'
import { tellFactors } from '../notices.ts'
import { checkMayGrant } from '../roles/rules.ts'
import { findRole } from '../roles/store.ts'
import { contextIn, orgOf, scopeOfTenant } from '../rules.ts'
import { checkAccountWide, isAccountWide } from '../sso-only.ts'
import { endSessions } from '../store.ts'
import { findTenant, tenantNamed } from '../tenant.ts'
import type { people } from './contract.ts'
import {
  disableMembership,
  giveRole,
  heldBy,
  removeMembership,
  renameInvited,
  withdrawAcceptance,
} from './memberships.ts'
import * as rules from './rules.ts'
import * as store from './store.ts'
import {
  checkMayTouch,
  checkNotLast,
  findTarget,
  findTargetAnywhere,
  lockTarget,
  lockTargetAnywhere,
  membershipOf,
  notFound,
  type Target,
} from './targets.ts'
import { orgReach, partnerReach } from './tenants.ts'
import { isOnlyWithin, isWithin, whichWithin } from './within.ts'

const about = ({ account }: Target, one: rules.Held | undefined) => ({
  orgId: rules.orgOfTenant(one?.tenant),
  resourceId: account.id,
  resourceName: account.email,
})

async function profile(db: Db, caller: UserCaller) {
  const account = await store.findAccount(db, caller.id)
  if (!account) throw new Problem('invalid_token')
  const { isSystem, ...own } = account
  const { scope } = caller
  // Of what belongs to the person and not to the organization, a provider shows nothing.
  const hidden = (await isAccountWide(db, account, caller)) ? {} : { phoneNumber: null, phoneVerified: false }
  return {
    ...own,
    ...hidden,
    status: own.status as 'active',
    mfaEnabled: own.mfaMethod !== null,
    mfaMethod: own.mfaMethod as 'totp' | 'sms' | null,
    isPlatformAdmin: isSystem,
    scope: scope.kind,
    partnerId: scope.kind === 'partner' ? scope.partnerId : null,
    orgId: orgOf(contextIn(scope)),
    roleId: caller.roleId,
    permissions: [...caller.permissions].sort().map((pair) => {
      const [resource = '', action = ''] = pair.split(':')
      return { resource, action }
    }),
  }
}

export const peopleHandlers = ({ cipher }: { cipher: Cipher }): HandlersOf<typeof people> => ({
  me: ({ db, caller }) => profile(db, caller),

  async changeMe({ db, caller, body, now, note }) {
    assertNotEmptyChange(body)
    const before = await profile(db, caller)
    await checkAccountWide(db, { id: caller.id, isSystem: before.isPlatformAdmin }, caller)
    await store.changeAccount(db, caller.id, body, now)
    const after = await profile(db, caller)
    const seen = ({ name, avatarUrl }: typeof before) => ({ name, avatarUrl })
    note({ resourceId: caller.id, resourceName: caller.email, before: seen(before), after: seen(after) })
    return after
  },

  async roles({ db, scope, query }) {
    const data = await store.listRoleChoices(db, await findTenant(db, scope, query))
    return { data: data.map((role) => ({ ...role, scope: role.scope as 'partner' })) }
  },

  async list({ db, ask, scope, query: { orgId, partnerId, ...query } }) {
    const tenant = await findTenant(db, scope, { orgId, partnerId })
    // Looking for a part of a name reads every account in sight.
    const listed = (on: Db) =>
      tenant ? store.listMembers(on, scope, tenant, query) : store.listAccounts(on, scope, query)
    const found = await (query.q ? ask(listed) : listed(db))
    const held = await heldBy(
      db,
      scope,
      found.data.map(({ id }) => id),
    )
    const within = await whichWithin(db, scope, found.data)
    return {
      data: found.data.map((account) => {
        const own = held.filter(({ userId }) => userId === account.id)
        // Among all the users of the service a person stands once, by their first membership.
        const one = tenant ? rules.theOne(own, tenant) : own[0]
        return rules.presented(account, one, within.has(account.id))
      }),
      pagination: found.pagination,
    }
  },

  async show({ db, scope, params, query }) {
    const account = await store.findAccount(db, params.id)
    const asked = await tenantNamed(db, scope, query)
    const held = account ? await heldBy(db, scope, [params.id]) : []
    const one = asked ? rules.theOne(held, asked) : held[0]
    if (!account || (!one && (asked || scope.kind !== 'system'))) throw notFound()
    const whole = await isWithin(db, scope, account)
    const { phoneNumber, phoneVerified, passwordChangedAt } = account
    const theirs = { phoneNumber: null, phoneVerified: false, passwordChangedAt: null }
    return {
      ...rules.presented(account, one, whole),
      ...(whole ? { phoneNumber, phoneVerified, passwordChangedAt } : theirs),
      memberships: held.map(rules.presentedMembership),
    }
  },

  async change({ db, scope, params, query, body, caller, now, note }) {
    assertNotEmptyChange(body)
    const asked = await tenantNamed(db, scope, query)
    // The account itself is changed by the system alone; a tenant changes what somebody is in it.
    const ofAccount = scope.kind === 'system' && asked === undefined
    const target = ofAccount
      ? await lockTargetAnywhere(db, scope, params.id)
      : await lockTarget(db, scope, params.id, asked)
    const { account, held, one } = target
    const whole = await isWithin(db, scope, account)
    const before = rules.presented(account, one, whole)
    const status = body.status === before.status ? undefined : body.status
    if (status !== undefined) rules.checkNotSelf(caller, account.id, 'You cannot change your own status')
    await checkMayTouch(db, caller, account, whole ? held : [membershipOf(target)])

    if (body.name !== undefined) {
      if (one?.acceptedAt === null) await renameInvited(db, one, body.name)
      else rules.checkMayChangeAccount(body, whole)
      if (whole) await store.changeAccount(db, account.id, { name: body.name }, now)
    }
    if (status !== undefined && ofAccount) await setAccountStatus(db, target, status, now)
    else if (status !== undefined) await setMembershipStatus(db, target, status, now)
    const changed = await findTarget(db, scope, params.id, one?.tenant)
    const after = rules.presented(changed.account, changed.one, await isWithin(db, scope, account))
    const seen = ({ name, status }: typeof after) => ({ name, status })
    note({ ...about(target, one), before: seen(before), after: seen(after) })
    return after
  },

  async remove({ db, scope, params, query, caller, now, note }) {
    const asked = await tenantNamed(db, scope, query)
    const target = await lockTarget(db, scope, params.id, asked)
    const one = membershipOf(target)
    rules.checkNotSelf(caller, params.id, 'You cannot remove yourself')
    await checkMayTouch(db, caller, target.account, [one])
    await checkNotLast(db, target.account, one)
    await removeMembership(db, one)
    await voidInvitation(db, params.id, one.tenant)
    await store.endSessionsIn(db, params.id, one.tenant, now)
    const { roleId, roleName } = one
    note({ ...about(target, one), before: { roleId, roleName, tenant: one.tenant } })
    return { success: true }
  },

  async assignRole({ db, scope, params, query, body, caller, note }) {
    const asked = await tenantNamed(db, scope, query)
    const target = await lockTarget(db, scope, params.id, asked)
    const one = membershipOf(target)
    rules.checkNotSelf(caller, params.id, 'Self role assignment is not allowed')
    const role = await findRole(db, one.tenant, body.roleId)
    const message = 'Invalid role for this scope'
    if (!role) throw invalid([{ path: 'body.roleId', message }], message)
    await checkMayTouch(db, caller, target.account, [one])
    const { permissions } = await findGrants(db, role.id)
    checkMayGrant(caller.permissions, permissions)
    if (!rules.administers(one, permissions)) await checkNotLast(db, target.account, one)
    await giveRole(db, one, role.id)
    const before = { roleId: one.roleId, roleName: one.roleName }
    note({ ...about(target, one), before, after: { roleId: role.id, roleName: role.name } })
    return { success: true }
  },

  async changeAccess({ db, scope, params, query, body, caller, note }) {
    assertNotEmptyChange(body)
    const asked = await tenantNamed(db, scope, query)
    const target = await lockTarget(db, scope, params.id, asked)
    const one = membershipOf(target)
    rules.checkNotSelf(caller, params.id, 'You cannot change your own access')
    await checkMayTouch(db, caller, target.account, [one])
    const { tenant } = one
    const reach = { ...one }
    if (tenant.kind === 'partner') {
      Object.assign(reach, await partnerReach(db, scope, tenant.partnerId, body, one))
    } else {
      const { siteIds, groupIds } = await orgReach(db, scope, tenant.orgId, body, one)
      Object.assign(reach, { siteIds, deviceGroupIds: groupIds })
    }
    rules.checkWithinReach(scope, reach)
    const { permissions } = await findGrants(db, one.roleId)
    if (!rules.administers(reach, permissions)) await checkNotLast(db, target.account, one)
    if (tenant.kind === 'partner') {
      await reachOrgs(db, one.id, { orgAccess: reach.orgAccess ?? 'none', orgIds: reach.orgIds ?? [] })
    } else {
      await reachDevices(db, one.id, { siteIds: reach.siteIds, groupIds: reach.deviceGroupIds })
    }
    const changed = await findTarget(db, scope, params.id, tenant)
    const seen = ({ orgAccess, orgIds, siteIds, deviceGroupIds }: rules.Held) =>
      tenant.kind === 'partner' ? { orgAccess, orgIds } : { siteIds, deviceGroupIds }
    note({ ...about(target, one), before: seen(one), after: seen(membershipOf(changed)) })
    return rules.presented(changed.account, changed.one, await isWithin(db, scope, changed.account))
  },

  resetMfa: inSteps<(typeof people)['resetMfa'], void>({
    async prepare({ params, caller, limit }) {
      limit('NOTICE', `${caller.id} ${params.id}`)
    },
    async run({ db, scope, params, caller, now, note }) {
      checkProvedLately(caller, now)
      const target = await findTargetAnywhere(db, scope, params.id)
      const { account, held } = target
      rules.checkNotSelf(caller, params.id, 'Change your own factors with /auth/mfa')
      await checkMayTouch(db, caller, account, held)
      if (!(await isWithin(db, scope, account))) throw ofOthersToo()
      await store.clearFactors(db, account.id, now)
      const what = 'An administrator removed the second factors of your account'
      await tellFactors(db, cipher, account, what, now)
      note({ ...about(target, held[0]), before: { mfaMethod: account.mfaMethod } })
      return { success: true }
    },
  }),

  async signOut({ db, scope, params, caller, now, note }) {
    checkProvedLately(caller, now)
    const target = await findTargetAnywhere(db, scope, params.id)
    await checkMayTouch(db, caller, target.account, target.held)
    await signOutOf(db, scope, target, now)
    note(about(target, target.held[0]))
    return { success: true }
  },

  async unlock({ db, scope, params, caller, note }) {
    const target = await findTargetAnywhere(db, scope, params.id)
    const { account, held } = target
    await checkMayTouch(db, caller, account, held)
    // Somebody who only invited the account would let themselves guess at its password again and again.
    if (!(await isWithin(db, scope, account))) throw ofOthersToo()
    await forgetMarks(db, account.id)
    note(about(target, held[0]))
    return { success: true }
  },
})

/** @throws last_administrator, conflict */
async function setAccountStatus(
  db: Db,
  { account, held, one }: Target,
  status: rules.Account['status'],
  now: Instant,
): Promise<void> {
  if (status !== 'active') {
    for (const each of held) await checkNotLast(db, account, each)
    const isLast = account.isSystem && (await store.otherSystemAdmins(db, account.id)) === 0
    if (isLast) throw new Problem('last_administrator')
  } else if (one?.acceptedAt === null && held.length === 1 && account.status === 'active') {
    throw onlyHolderAccepts()
  }
  await store.changeAccount(db, account.id, { status }, now)
  if (!one || held.length > 1 || status !== 'active') return
  await disableMembership(db, one, null)
  if (rules.isUnused(account)) await acceptMembership(db, account.id, one.tenant, 'holder', now)
}

/** What somebody is in one tenant; what they are elsewhere stays as it is. @throws last_administrator, conflict */
async function setMembershipStatus(
  db: Db,
  target: Target,
  status: rules.Account['status'],
  now: Instant,
): Promise<void> {
  const { account } = target
  const one = membershipOf(target)
  if (status !== 'active') {
    await checkNotLast(db, account, one)
    if (status === 'invited') await withdrawAcceptance(db, one)
    else await disableMembership(db, one, now)
    return store.endSessionsIn(db, account.id, one.tenant, now)
  }
  // Who has never signed in can be let in without a link, by whoever invited them and nobody else did.
  const mayLetIn = rules.isUnused(account) && (await isOnlyWithin(db, scopeOfTenant(one.tenant), account))
  if (one.acceptedAt === null && !mayLetIn) throw onlyHolderAccepts()
  if (account.status === 'disabled') {
    throw new Problem('conflict', 'The account is disabled by whoever runs the service')
  }
  await disableMembership(db, one, null)
  if (one.acceptedAt !== null) return
  await acceptMembership(db, account.id, one.tenant, 'holder', now)
  await store.changeAccount(db, account.id, { status }, now)
}

const ofOthersToo = () => new Problem('forbidden', 'This account belongs to other tenants as well')

const onlyHolderAccepts = () =>
  new Problem('conflict', 'The invitation waits for its holder: nobody else can accept it')

async function signOutOf(db: Db, scope: Scope, { account, held }: Target, now: Instant): Promise<void> {
  if (scope.kind === 'system') return endSessions(db, account.id, now)
  for (const { tenant } of held) await store.endSessionsIn(db, account.id, tenant, now)
}
