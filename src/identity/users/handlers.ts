import type { Cipher } from '../../core/cipher.ts'
import { assertNotEmptyChange, invalid, Problem } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { type HandlersOf, inSteps, type UserCaller } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { checkRecentAuthentication } from '../factors/proof.ts'
import { voidInvitation } from '../invitations/store.ts'
import { acceptMembership, findGrants, setOrgAccess, setPartnerAccess } from '../memberships.ts'
import { notifyFactorsChanged } from '../notifications.ts'
import { deleteMarks } from '../password-guard/store.ts'
import { checkMayGrantPeople } from '../roles/rules.ts'
import { findRole } from '../roles/store.ts'
import { contextOfScope, orgOfContext, scopeOfTenant } from '../rules.ts'
import { canManageAccount, checkCanManageAccount } from '../sso-only.ts'
import { endSessions } from '../store.ts'
import { findNamedTenant, findTenant } from '../tenant.ts'
import { resolveOrgAccess, resolvePartnerAccess } from './access.ts'
import { isOnlyInvitedInScope, isWhollyInScope, listWhollyInScope } from './account-scope.ts'
import type { people } from './contract.ts'
import {
  listMembershipRecords,
  removeMembership,
  renameInvited,
  resetAcceptance,
  setMembershipDisabled,
  setRole,
} from './memberships.ts'
import * as rules from './rules.ts'
import * as store from './store.ts'
import {
  checkMayManageUser,
  checkNotLastAdmin,
  findTarget,
  findTargetAnywhere,
  getMembership,
  lockTarget,
  lockTargetAnywhere,
  type Target,
  userNotFound,
} from './targets.ts'

const auditFacts = ({ account }: Target, one: rules.MembershipRecord | undefined) => ({
  orgId: rules.orgOfTenant(one?.tenant),
  resourceId: account.id,
  resourceName: account.email,
  details: rules.detailsOfTenant(one?.tenant),
})

async function profile(db: Db, caller: UserCaller) {
  const account = await store.findAccount(db, caller.id)
  if (!account) throw new Problem('invalid_token')
  const { isSystem, ...own } = account
  const { scope } = caller
  // A session from a provider does not see what belongs to the person rather than to the organization.
  const hidden = (await canManageAccount(db, account, caller))
    ? {}
    : { phoneNumber: null, phoneVerified: false }
  return {
    ...own,
    ...hidden,
    status: own.status as 'active',
    mfaEnabled: own.mfaMethod !== null,
    mfaMethod: own.mfaMethod as 'totp' | 'sms' | null,
    isPlatformAdmin: isSystem,
    scope: scope.kind,
    partnerId: scope.kind === 'partner' ? scope.partnerId : null,
    orgId: orgOfContext(contextOfScope(scope)),
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
    await checkCanManageAccount(db, { id: caller.id, isSystem: before.isPlatformAdmin }, caller)
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

  async list({ db, readQuery, scope, query: { orgId, partnerId, ...query } }) {
    const tenant = await findTenant(db, scope, { orgId, partnerId })
    // Which name is shown, and so the order, takes the memberships of every account in scope.
    return readQuery(async (on) => {
      const found = await (tenant
        ? store.listMembers(on, scope, tenant, query)
        : store.listAccounts(on, scope, query))
      const ids = found.data.map(({ id }) => id)
      const held = await listMembershipRecords(on, scope, ids)
      const within = await listWhollyInScope(on, scope, found.data)
      return {
        data: found.data.map((account) => {
          const own = held.filter(({ userId }) => userId === account.id)
          // In the list of all users of the service a person appears once, with their first membership.
          const one = tenant ? rules.selectMembership(own, tenant) : own[0]
          return rules.toUser(account, one, within.has(account.id))
        }),
        pagination: found.pagination,
      }
    })
  },

  async show({ db, scope, params, query }) {
    const account = await store.findAccount(db, params.id)
    const requested = await findNamedTenant(db, scope, query)
    const held = account ? await listMembershipRecords(db, scope, [params.id]) : []
    const one = requested ? rules.selectMembership(held, requested) : held[0]
    if (!account || (!one && (requested || scope.kind !== 'system'))) throw userNotFound()
    const whole = await isWhollyInScope(db, scope, account)
    const { phoneNumber, phoneVerified, passwordChangedAt } = account
    const theirs = { phoneNumber: null, phoneVerified: false, passwordChangedAt: null }
    return {
      ...rules.toUser(account, one, whole),
      ...(whole ? { phoneNumber, phoneVerified, passwordChangedAt } : theirs),
      memberships: held.map(rules.toMembership),
    }
  },

  async change({ db, scope, params, query, body, caller, now, note }) {
    assertNotEmptyChange(body)
    const requested = await findNamedTenant(db, scope, query)
    // Only the system changes the account itself; a tenant changes the person's membership in it.
    const ofAccount = scope.kind === 'system' && requested === undefined
    const target = ofAccount
      ? await lockTargetAnywhere(db, scope, params.id)
      : await lockTarget(db, scope, params.id, requested)
    const { account, held, one } = target
    const whole = await isWhollyInScope(db, scope, account)
    const before = rules.toUser(account, one, whole)
    const status = body.status === before.status ? undefined : body.status
    if (status !== undefined) rules.checkNotSelf(caller, account.id, 'You cannot change your own status')
    await checkMayManageUser(db, caller, account, whole ? held : [getMembership(target)])

    if (body.name !== undefined) {
      if (one?.acceptedAt === null) await renameInvited(db, one, body.name)
      else rules.checkMayChangeAccount(body, whole)
      if (whole) await store.changeAccount(db, account.id, { name: body.name }, now)
    }
    if (status !== undefined && ofAccount) await setAccountStatus(db, target, status, now)
    else if (status !== undefined) await setMembershipStatus(db, target, status, now)
    const changed = await findTarget(db, scope, params.id, one?.tenant)
    const after = rules.toUser(changed.account, changed.one, await isWhollyInScope(db, scope, account))
    const seen = ({ name, status }: typeof after) => ({ name, status })
    note({ ...auditFacts(target, one), before: seen(before), after: seen(after) })
    return after
  },

  async remove({ db, scope, params, query, caller, now, note }) {
    const requested = await findNamedTenant(db, scope, query)
    const target = await lockTarget(db, scope, params.id, requested)
    const one = getMembership(target)
    rules.checkNotSelf(caller, params.id, 'You cannot remove yourself')
    await checkMayManageUser(db, caller, target.account, [one])
    await checkNotLastAdmin(db, target.account, one)
    await removeMembership(db, one)
    await voidInvitation(db, params.id, one.tenant)
    await store.endUserSessions(db, params.id, one.tenant, now)
    const { roleId, roleName } = one
    note({ ...auditFacts(target, one), before: { roleId, roleName, tenant: one.tenant } })
    return { success: true }
  },

  async assignRole({ db, scope, params, query, body, caller, note }) {
    const requested = await findNamedTenant(db, scope, query)
    const target = await lockTarget(db, scope, params.id, requested)
    const one = getMembership(target)
    rules.checkNotSelf(caller, params.id, 'Self role assignment is not allowed')
    const role = await findRole(db, one.tenant, body.roleId)
    const message = 'Invalid role for this scope'
    if (!role) throw invalid([{ path: 'body.roleId', message }], message)
    await checkMayManageUser(db, caller, target.account, [one])
    const { permissions } = await findGrants(db, role.id)
    checkMayGrantPeople(caller, permissions)
    if (!rules.isAdministrator(one, permissions)) await checkNotLastAdmin(db, target.account, one)
    await setRole(db, one, role.id)
    const before = { roleId: one.roleId, roleName: one.roleName }
    note({ ...auditFacts(target, one), before, after: { roleId: role.id, roleName: role.name } })
    return { success: true }
  },

  async changeAccess({ db, scope, params, query, body, caller, note }) {
    assertNotEmptyChange(body)
    const requested = await findNamedTenant(db, scope, query)
    const target = await lockTarget(db, scope, params.id, requested)
    const one = getMembership(target)
    rules.checkNotSelf(caller, params.id, 'You cannot change your own access')
    await checkMayManageUser(db, caller, target.account, [one])
    const { tenant } = one
    const reach = { ...one }
    if (tenant.kind === 'partner') {
      Object.assign(reach, await resolvePartnerAccess(db, scope, tenant.partnerId, body, one))
    } else {
      const { siteIds, groupIds } = await resolveOrgAccess(db, scope, tenant.orgId, body, one)
      Object.assign(reach, { siteIds, deviceGroupIds: groupIds })
    }
    rules.checkWithinAccess(scope, reach)
    const { permissions } = await findGrants(db, one.roleId)
    if (!rules.isAdministrator(reach, permissions)) await checkNotLastAdmin(db, target.account, one)
    if (tenant.kind === 'partner') {
      await setPartnerAccess(db, one.id, { orgAccess: reach.orgAccess ?? 'none', orgIds: reach.orgIds ?? [] })
    } else {
      await setOrgAccess(db, one.id, { siteIds: reach.siteIds, groupIds: reach.deviceGroupIds })
    }
    const changed = await findTarget(db, scope, params.id, tenant)
    const seen = ({ orgAccess, orgIds, siteIds, deviceGroupIds }: rules.MembershipRecord) =>
      tenant.kind === 'partner' ? { orgAccess, orgIds } : { siteIds, deviceGroupIds }
    note({ ...auditFacts(target, one), before: seen(one), after: seen(getMembership(changed)) })
    return rules.toUser(changed.account, changed.one, await isWhollyInScope(db, scope, changed.account))
  },

  resetMfa: inSteps<(typeof people)['resetMfa'], void>({
    async prepare({ params, caller, limit }) {
      await limit('NOTICE', `${caller.id} ${params.id}`)
    },
    async run({ db, scope, params, caller, now, note }) {
      checkRecentAuthentication(caller, now)
      const target = await findTargetAnywhere(db, scope, params.id)
      const { account, held } = target
      rules.checkNotSelf(caller, params.id, 'Change your own factors with /auth/mfa')
      await checkMayManageUser(db, caller, account, held)
      if (!(await isWhollyInScope(db, scope, account))) throw sharedAccount()
      await store.clearFactors(db, account.id, now)
      const what = 'An administrator removed the second factors of your account'
      await notifyFactorsChanged(db, cipher, account, what, now)
      note({ ...auditFacts(target, held[0]), before: { mfaMethod: account.mfaMethod } })
      return { success: true }
    },
  }),

  async signOut({ db, scope, params, caller, now, note }) {
    checkRecentAuthentication(caller, now)
    const target = await findTargetAnywhere(db, scope, params.id)
    await checkMayManageUser(db, caller, target.account, target.held)
    await endSessionsInScope(db, scope, target, now)
    note(auditFacts(target, target.held[0]))
    return { success: true }
  },

  async unlock({ db, scope, params, caller, note }) {
    const target = await findTargetAnywhere(db, scope, params.id)
    const { account, held } = target
    await checkMayManageUser(db, caller, account, held)
    // A tenant that only invited the account could otherwise lift the lockout and guess its password again and
    // again.
    if (!(await isWhollyInScope(db, scope, account))) throw sharedAccount()
    await deleteMarks(db, account.id)
    note(auditFacts(target, held[0]))
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
    for (const each of held) await checkNotLastAdmin(db, account, each)
    const isLast = account.isSystem && (await store.countOtherSystemAdmins(db, account.id)) === 0
    if (isLast) throw new Problem('last_administrator')
  } else if (one?.acceptedAt === null && held.length === 1 && account.status === 'active') {
    throw onlyHolderAccepts()
  }
  await store.changeAccount(db, account.id, { status }, now)
  if (!one || held.length > 1 || status !== 'active') return
  await setMembershipDisabled(db, one, null)
  if (rules.isNeverUsed(account)) await acceptMembership(db, account.id, one.tenant, 'holder', now)
}

/** Changes a person's status in one tenant; other tenants are unaffected. @throws last_administrator, conflict */
async function setMembershipStatus(
  db: Db,
  target: Target,
  status: rules.Account['status'],
  now: Instant,
): Promise<void> {
  const { account } = target
  const one = getMembership(target)
  if (status !== 'active') {
    await checkNotLastAdmin(db, account, one)
    if (status === 'invited') await resetAcceptance(db, one)
    else await setMembershipDisabled(db, one, now)
    return store.endUserSessions(db, account.id, one.tenant, now)
  }
  // A person who has never signed in can be activated without a link by their inviter, if no other tenant
  // invited them.
  const mayLetIn =
    rules.isNeverUsed(account) && (await isOnlyInvitedInScope(db, scopeOfTenant(one.tenant), account))
  if (one.acceptedAt === null && !mayLetIn) throw onlyHolderAccepts()
  if (account.status === 'disabled') {
    throw new Problem('conflict', 'The account is disabled by whoever runs the service')
  }
  await setMembershipDisabled(db, one, null)
  if (one.acceptedAt !== null) return
  await acceptMembership(db, account.id, one.tenant, 'holder', now)
  await store.changeAccount(db, account.id, { status }, now)
}

const sharedAccount = () => new Problem('forbidden', 'This account belongs to other tenants as well')

const onlyHolderAccepts = () =>
  new Problem('conflict', 'The invitation waits for its holder: nobody else can accept it')

async function endSessionsInScope(
  db: Db,
  scope: Scope,
  { account, held }: Target,
  now: Instant,
): Promise<void> {
  if (scope.kind === 'system') return endSessions(db, account.id, now)
  for (const { tenant } of held) await store.endUserSessions(db, account.id, tenant, now)
}
