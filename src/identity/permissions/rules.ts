import type { Access } from '../../core/endpoint.ts'
import { errors } from '../../core/errors.ts'
import { findGrantSource, type RoleChain, type RoleNode } from '../roles/rules.ts'
import { type AccessDecision, type AccessSubject, decideAccess } from '../rules.ts'
import type { Explanation } from './contract.ts'

/**
 * A person, a role or a program, with the roles that give the permissions; system administrators and programs
 * have none.
 */
export type Actor = {
  subject: Extract<AccessSubject, { kind: 'user' | 'api_key' | 'workload' }>
  chain: RoleChain | undefined
  user: { id: string; name: string } | undefined
}

/** Explains in words what `decideAccess` decides for a request. */
export function explain(access: Access, actor: Actor, mfaOn: boolean): Explanation {
  const verdict = decideAccess(access, actor.subject, mfaOn)
  const permission = (access.who === 'user' && access.permission) || null
  const { subject, chain, user } = actor
  const [role] = chain ?? []
  const source = permission !== null && chain && findGrantSource(chain, permission)
  const grantedBy = source
    ? {
        roleId: source.link.id,
        roleName: source.link.name,
        permission: source.permission,
        inherited: source.link !== role,
      }
    : null
  return {
    allowed: verdict.allowed,
    status: verdict.allowed ? null : errors[verdict.code].status,
    code: verdict.allowed ? null : verdict.code,
    ...reasonFor(verdict, access, actor, grantedBy),
    permission,
    grantedBy,
    subject: {
      userId: user?.id ?? null,
      userName: user?.name ?? null,
      roleId: role?.id ?? null,
      roleName: role?.name ?? null,
      scope: subject.scope.kind,
      mfa: subject.kind === 'user' && subject.mfa,
    },
  }
}

type ReasonText = { reason: string; hint: string | null }

function reasonFor(
  verdict: AccessDecision,
  access: Access,
  { subject, chain }: Actor,
  grantedBy: Explanation['grantedBy'],
): ReasonText {
  const say = (reason: string, hint: string | null = null): ReasonText => ({ reason, hint })
  const [role] = chain ?? []
  if (verdict.allowed) {
    if (access.who === 'public') return say('It is open to everyone')
    if (access.who === 'agent' || access.permission === undefined)
      return say('It is open to everyone who is signed in')
    if (subject.kind === 'api_key') return say(`The scopes of the key hold ${access.permission}`)
    if (subject.kind === 'workload') return say(`The trust policy names ${access.permission}`)
    if (!grantedBy) return say('A system administrator holds every permission')
    const by = grantedBy.permission === access.permission ? '' : ` by ${grantedBy.permission}`
    const below = grantedBy.inherited ? `, from which ${quoted(role)} inherits` : ''
    return say(`The role "${grantedBy.roleName}" grants ${access.permission}${by}${below}`)
  }
  const needs = access.who === 'user' ? access : undefined
  switch (verdict.code) {
    case 'invalid_agent_credentials':
      return say('It is for the agent of a device alone, with its token')
    case 'invitation_pending':
      return say('The invitation waits for its holder to accept it', 'svc invite accept NAME')
    case 'site_access_denied':
      return say('It reaches all devices at once, and this reaches some sites or device groups alone')
    case 'account_inactive':
      return say('The account is not active')
    case 'tenant_inactive':
      return say('The organization or its partner is not active')
    case 'mfa_enrollment_required':
      return say(
        `${mfaSource(chain)} demands a second factor, and none is enrolled`,
        'svc mfa setup, then svc mfa enable',
      )
    case 'scope_not_allowed':
      return say(
        `It is for ${needs?.scopes.join(' or ')} scope, and this is ${subject.scope.kind} scope`,
        'sign in with another membership: svc login --partner P or --org O',
      )
    case 'forbidden':
      if (subject.kind === 'workload') return workloadReason(needs)
      return say(
        `Neither the role ${quoted(role)} nor one it inherits from grants ${needs?.permission}`,
        `someone who holds ${needs?.permission} can add it to the role, or assign another one`,
      )
    case 'api_key_scope':
      return say(
        `The scopes of the key do not hold ${needs?.permission}`,
        'svc keys update KEY --scope … gives it other scopes',
      )
    case 'unauthenticated':
      return say('It is for people who are signed in, not for API keys', 'svc login')
    case 'partner_access_limited':
      return say(
        'It is for partner users with access to all organizations, and this one has selected ones or none',
        'a partner administrator can set orgAccess to all',
      )
    case 'mfa_required':
      return say(
        'It needs a session with a verified second factor',
        subject.kind === 'user' && subject.mfaEnabled
          ? 'sign in again with a code: svc login'
          : 'svc mfa setup, then svc mfa enable',
      )
    default:
      return say(verdict.message ?? errors[verdict.code].title)
  }
}

function workloadReason(needs: Extract<Access, { who: 'user' }> | undefined): ReasonText {
  if (!needs?.workload) return { reason: 'It is not open to workloads', hint: 'svc login' }
  if (needs.workload === 'files')
    return { reason: 'It is open to workloads in files alone', hint: 'svc config apply' }
  const hint = 'svc trust update POLICY --permission … names other ones'
  return { reason: `The trust policy does not name ${needs.permission}`, hint }
}

const quoted = (role: RoleNode | undefined): string => `"${role?.name ?? ''}"`

function mfaSource(chain: RoleChain | undefined): string {
  const forcing = chain?.find(({ forceMfa }) => forceMfa)
  return forcing ? `The role ${quoted(forcing)}` : 'The organization or partner'
}
