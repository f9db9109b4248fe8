import { userAccess } from '../../core/endpoint.ts'
import { invalid, Problem } from '../../core/errors.ts'
import {
  actionLabels,
  describePermission,
  permissions as every,
  pairOf,
  permissionOf,
  resourceLabels,
} from '../../core/permissions.ts'
import { findRoute, type NamedEndpoint } from '../../core/routes.ts'
import { organizationScope, type Scope } from '../../core/scope.ts'
import type { HandlersOf, UserCaller } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { listMemberships } from '../memberships.ts'
import { findRoleChain } from '../roles/inheritance.ts'
import { forcesMfa, grantedPermissions } from '../roles/rules.ts'
import { findRole, getRole } from '../roles/store.ts'
import { checkAccess, chooseContext, type Membership, mustEnrollMfa, scopeOf } from '../rules.ts'
import { getNamedScope } from '../tenant.ts'
import { isWhollyInScope } from '../users/account-scope.ts'
import { listMembershipRecords } from '../users/memberships.ts'
import { toUser } from '../users/rules.ts'
import { findAccount } from '../users/store.ts'
import type * as contract from './contract.ts'
import { type Actor, explain } from './rules.ts'

/** `entries` are all routes, which a capability cannot know. `mfaOn`: ENABLE_2FA. */
export const permissionHandlers = (on: {
  entries: readonly NamedEndpoint[]
  mfaOn: boolean
}): HandlersOf<typeof contract.permissions> => {
  const { entries, mfaOn } = on

  return {
    catalog: async () => ({
      permissions: every.map((one) => ({ ...pairOf(one), description: describePermission(one) })),
      resourceLabels,
      actionLabels,
    }),

    async canI({ db, scope, caller, query }) {
      const actor = await actorOf(db, scope, caller, query)
      const permission = permissionOf(query)
      if (!permission) {
        const message = `Unknown permission: ${query.resource}:${query.action}`
        throw invalid([{ path: 'query.action', message }], message)
      }
      return explain(userAccess({ permission }), actor, mfaOn)
    },

    async explain({ db, scope, caller, query }) {
      const actor = await actorOf(db, scope, caller, query)
      const found = findRoute(entries, query.method, query.path)
      if (!found) throw new Problem('not_found', `There is no route ${query.method} ${query.path}`)
      const { name, entry } = found
      const { method, path, summary, access } = entry
      return { ...explain(access, actor, mfaOn), method, path, operation: name, summary }
    },
  }

  /**
   * The subject of the query. A query about others needs the permissions to read users and roles.
   * @throws forbidden, partner_access_limited, not_found for a user outside the caller's scope
   */
  async function actorOf(db: Db, scope: Scope, caller: UserCaller, query: Query): Promise<Actor> {
    const { userId, roleId, keyScopes, workloadPermissions, mfa } = query
    if (keyScopes !== undefined) return apiKeyActor(keyScopes)
    if (workloadPermissions !== undefined) return workloadActor(workloadPermissions)
    const others = roleId !== undefined || (userId !== undefined && userId !== caller.id)
    if (others) checkAccess(userAccess({ permission: 'users:read', wholePartner: true }), caller, mfaOn)
    const reach = await getNamedScope(db, scope, query)
    const actor = !others
      ? await callerActor(db, caller)
      : userId === undefined
        ? await roleActor(db, reach, roleId!)
        : await userActor(db, { scope, reach }, userId, roleId)
    return mfa === undefined || actor.subject.kind !== 'user'
      ? actor
      : { ...actor, subject: { ...actor.subject, mfa } }
  }
}

type Query = {
  userId?: string | undefined
  roleId?: string | undefined
  keyScopes?: string | undefined
  workloadPermissions?: string | undefined
  mfa?: boolean | undefined
  orgId?: string | undefined
  partnerId?: string | undefined
}

async function callerActor(db: Db, caller: UserCaller): Promise<Actor> {
  const chain = caller.roleId === null ? undefined : await findRoleChain(db, caller.roleId)
  return { subject: caller, chain, user: caller }
}

/** An API key of any organization with these scopes; `*` is every permission. */
function apiKeyActor(scopes: string): Actor {
  const permissions = new Set(splitList(scopes).map((one) => (one === '*' ? '*:*' : one)))
  return {
    subject: { kind: 'api_key', scope: organizationScope(''), permissions },
    chain: undefined,
    user: undefined,
  }
}

/** A job that signed in through a trust policy of any organization. */
function workloadActor(names: string): Actor {
  const permissions = new Set(splitList(names))
  return {
    subject: { kind: 'workload', scope: organizationScope(''), permissions },
    chain: undefined,
    user: undefined,
  }
}

const splitList = (text: string): string[] => text.split(',').map((one) => one.trim())

/** A person who has only this role, with a verified factor. */
async function roleActor(db: Db, reach: Scope, roleId: string): Promise<Actor> {
  const role = await getRole(db, reach, roleId)
  const chain = await findRoleChain(db, role.id)
  const scope: Scope =
    role.scope === 'partner'
      ? { kind: 'partner', partnerId: role.partnerId ?? '', orgs: 'all' }
      : organizationScope(role.orgId ?? '')
  const permissions = grantedPermissions(chain ?? [])
  const factor = { mfa: true, mfaEnabled: true, mfaDemanded: false }
  const subject = { kind: 'user' as const, scope, permissions, ...factor }
  return { subject, chain, user: undefined }
}

/**
 * A user in scope with the membership of their default sign-in, or with another role when one is named. When
 * their account is not wholly in the caller's scope, the result reveals no more than the membership: it stands
 * for any holder of it, with a factor.
 */
async function userActor(
  db: Db,
  { scope, reach }: { scope: Scope; reach: Scope },
  userId: string,
  roleId: string | undefined,
): Promise<Actor> {
  const person = await findAccount(db, userId)
  const memberships = (await listMemberships(db, userId)).filter((one) => isVisible(reach, one))
  const system = reach.kind === 'system' && person?.isSystem === true
  if (!person || (memberships.length === 0 && !system)) throw new Problem('not_found', 'User not found')
  const context = chooseContext(system, memberships, {})
  const membership = memberships.find((one) => one.usable && matchesContext(one, context)) ?? memberships[0]
  const whole = await isWhollyInScope(db, scope, person)
  const held =
    membership &&
    (await listMembershipRecords(db, scope, [userId])).find((one) => matchesContext(membership, one.tenant))
  const { name, status, mfaEnabled } = toUser(person, held, whole)
  const factor = { kind: 'user' as const, mfa: mfaEnabled ?? true, mfaEnabled: mfaEnabled ?? true }
  const barred = status === 'active' || membership?.invited ? undefined : ('account_inactive' as const)
  if (context?.kind === 'system' || !membership) {
    if (roleId !== undefined) throw new Problem('not_found', 'Role not found')
    const subject = {
      ...factor,
      scope: scopeOf(undefined),
      permissions: allPermissions,
      mfaDemanded: false,
      barred,
    }
    return { subject, chain: undefined, user: { id: userId, name } }
  }
  const role = roleId === undefined ? membership.roleId : (await findRole(db, membership, roleId))?.id
  if (role === undefined) throw new Problem('not_found', 'Role not found')
  const chain = (await findRoleChain(db, role)) ?? undefined
  const demands = { forceMfa: forcesMfa(chain ?? []), requiresMfa: membership.requiresMfa }
  const subject = {
    ...factor,
    scope: scopeOf(membership),
    permissions: grantedPermissions(chain ?? []),
    mfaDemanded: mfaEnabled !== null && mustEnrollMfa(demands, person.mfaMethod),
    barred: barred ?? barredReason(membership),
  }
  return { subject, chain, user: { id: userId, name } }
}

function barredReason(
  membership: Membership,
): 'invitation_pending' | 'tenant_pending' | 'tenant_inactive' | undefined {
  if (membership.usable) return undefined
  if (membership.invited) return 'invitation_pending'
  return membership.kind === 'partner' && membership.pending ? 'tenant_pending' : 'tenant_inactive'
}

const allPermissions: ReadonlySet<string> = new Set(['*:*'])

const matchesContext = (membership: Membership, context: ReturnType<typeof chooseContext>): boolean =>
  context?.kind === 'partner'
    ? membership.kind === 'partner' && membership.partnerId === context.partnerId
    : context?.kind === 'organization' &&
      membership.kind === 'organization' &&
      membership.orgId === context.orgId

/** Whether this scope includes the members of that tenant. */
function isVisible(reach: Scope, membership: Membership): boolean {
  if (reach.kind === 'system') return true
  if (reach.kind === 'organization')
    return membership.kind === 'organization' && membership.orgId === reach.orgId
  if (membership.partnerId !== reach.partnerId) return false
  return membership.kind === 'partner' || reach.orgs === 'all' || reach.orgs.includes(membership.orgId)
}
