import type { FastifyRequest } from 'fastify'
import { type AuditEvent, type DraftEntry, toDraftEntry } from '../src/audit/rules.ts'
import type { Endpoint } from '../src/core/endpoint.ts'
import type { Problem } from '../src/core/errors.ts'
import { hideSecretsIn } from '../src/core/free-objects.ts'
import { type AuditedResource, withoutSecrets } from '../src/core/schema.ts'
import type { AuditFacts, Caller } from '../src/handler.ts'

/** The origin of a request, for the audit log. */
export type Origin = { ip: string; userAgent: string | null }

type Replied = { id?: string; orgId?: string; name?: string; hostname?: string }

/** The entry of a change that succeeded; undefined for the few that leave none. */
export function successEntry(
  entry: Endpoint,
  request: { params: unknown; body: unknown },
  reply: unknown,
  facts: AuditFacts,
  caller: Caller,
  origin: Origin,
  now: string,
): DraftEntry | undefined {
  const { audit } = entry
  if (!audit || 'unaudited' in audit || facts.unchanged) return undefined
  const made = (reply ?? {}) as Replied
  const params = (request.params ?? {}) as { id?: string }
  const {
    details,
    before,
    after = before === undefined
      ? hideSecretsIn(entry.body, withoutSecrets(entry.body, request.body))
      : undefined,
  } = facts
  // The organization is the one that the handler noted, even none. A caller who is only invited belongs to none.
  const own = isWaiting(caller) ? null : (made.orgId ?? orgOfCaller(caller))
  const orgId = facts.orgId === undefined ? own : facts.orgId
  const about = {
    ...facts,
    orgId,
    resourceId: facts.resourceId ?? made.id ?? params.id,
    resourceName: facts.resourceName ?? made.name ?? made.hostname,
    details: { ...details, ...(before !== undefined && { before }), ...(filled(after) && { after }) },
  }
  return auditEntryOf(audit, about as ChangeFacts, caller, origin, now)
}

type ChangeFacts = {
  action?: string
  actor?: AuditFacts['actor']
  orgId: string | null
  resourceId?: string | undefined
  resourceName?: string | undefined
  details: Record<string, unknown>
}

/** The entry of a change. */
export function auditEntryOf(
  audit: { action: string; resource: AuditedResource },
  { action = audit.action, actor, orgId, resourceId, resourceName, details }: ChangeFacts,
  caller: Caller,
  origin: Origin,
  now: string,
): DraftEntry {
  const happening: AuditEvent = {
    ...actorOf(caller, actor),
    orgId,
    action,
    resourceType: audit.resource,
    resourceId: resourceId ?? null,
    resourceName: resourceName ?? null,
    details: { ...details, ...runOf(caller) },
    ipAddress: origin.ip,
    userAgent: origin.userAgent,
    result: 'success',
  }
  return toDraftEntry(happening, now)
}

/**
 * The entry of a refusal: a failed sign-in, a 403, or a record that a tenant's user requested outside of their
 * scope. undefined for all other failures.
 */
export function refusalEntry(
  entry: Endpoint,
  request: FastifyRequest,
  problem: Problem,
  origin: Origin,
  now: string,
): DraftEntry | undefined {
  const { caller = { kind: 'nobody' } as Caller, facts } = request
  const { refusal } = problem.extras
  const program = caller.kind === 'api_key' || caller.kind === 'workload'
  const tenant = (caller.kind === 'user' && caller.scope.kind !== 'system') || program
  const foreign = problem.status === 404 && tenant
  const denied = problem.status === 403 && (caller.kind !== 'nobody' || facts.orgId !== undefined)
  if (!refusal && !foreign && !denied) return undefined
  const { audit } = entry
  const named = audit && !('unaudited' in audit) ? audit : { action: 'access.denied', resource: 'route' }
  const params = (request.params ?? {}) as { id?: string }
  const actor =
    refusal?.actorEmail === undefined
      ? undefined
      : { kind: 'user' as const, id: refusal.actorId ?? '', email: refusal.actorEmail }
  const happening: AuditEvent = {
    ...actorOf(caller, actor),
    orgId: refusal?.orgId ?? facts.orgId ?? orgOfCaller(caller),
    action: refusal?.action ?? named.action,
    resourceType: named.resource,
    resourceId: facts.resourceId ?? params.id ?? null,
    resourceName: null,
    details: {
      method: entry.method,
      path: entry.path,
      code: problem.code,
      ...runOf(caller),
      ...facts.details,
      ...refusal?.details,
    },
    ipAddress: origin.ip,
    userAgent: origin.userAgent,
    result: refusal?.result ?? (problem.status === 401 ? 'failure' : 'denied'),
    errorMessage: problem.message,
  }
  return toDraftEntry(happening, now)
}

function actorOf(
  caller: Caller,
  known: AuditFacts['actor'],
): Pick<AuditEvent, 'actorType' | 'actorId' | 'actorEmail'> {
  if (caller.kind === 'user') return { actorType: 'user', actorId: caller.id, actorEmail: caller.email }
  if (caller.kind === 'api_key' || caller.kind === 'workload') return programOf(caller.id)
  if (caller.kind === 'agent') return { actorType: 'agent', actorId: caller.deviceId, actorEmail: null }
  if (known?.kind === 'workload') return programOf(known.id)
  if (known) return { actorType: known.kind, actorId: known.id || null, actorEmail: known.email }
  return { actorType: 'system', actorId: null, actorEmail: null }
}

/** Actor types are part of the entry format: a workload counts as `api_key`, and `runOf` adds which one. */
const programOf = (actorId: string) => ({ actorType: 'api_key' as const, actorId, actorEmail: null })

const runOf = (caller: Caller) =>
  caller.kind === 'workload' ? { workload: { policy: caller.name, run: caller.run } } : {}

/** An invited person is not a member yet: the tenant must not read their actions. */
const isWaiting = (caller: Caller): boolean =>
  caller.kind === 'user' && caller.barred === 'invitation_pending'

function orgOfCaller(caller: Caller): string | null {
  if (caller.kind !== 'user') return 'orgId' in caller ? caller.orgId : null
  if (isWaiting(caller)) return null
  return caller.scope.kind === 'organization' ? caller.scope.orgId : null
}

const filled = (value: unknown): boolean =>
  value !== undefined && value !== null && (typeof value !== 'object' || Object.keys(value).length > 0)
