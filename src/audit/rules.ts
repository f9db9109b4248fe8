import { isId, zeroId } from '../core/ids.ts'
import { newId } from '../core/new-id.ts'
import { truncateStorable } from '../core/text.ts'
import type { Instant } from '../core/time.ts'
import type { ChainEntry } from './chain.ts'
import type { AuditEntry } from './contract.ts'
import { boundDetails } from './details/rules.ts'

/** Chain of the entries that belong to no organization; readable in system scope only. */
export const systemChain = 'system'

export const chainOf = (orgId: string | null): string => orgId ?? systemChain

/** Whether this is a valid chain name: the names come from the database and become file names. */
export const isChain = (chain: string): boolean => chain === systemChain || isId(chain)

export const orgOfChain = (chain: string): string | null => (chain === systemChain ? null : chain)

/** An entry before it is linked into the chain. */
export type DraftEntry = Omit<ChainEntry, 'seq' | 'prevChecksum'>

export type AuditEvent = {
  orgId: string | null
  actorType: ChainEntry['actorType']
  actorId: string | null
  actorEmail: string | null
  action: string
  resourceType: string
  resourceId: string | null
  resourceName: string | null
  details: Record<string, unknown>
  ipAddress: string | null
  userAgent: string | null
  result: ChainEntry['result']
  errorMessage?: string
}

/**
 * Turns an event into an entry: an id that is not a UUID becomes the zero UUID with the original in details,
 * texts are cut to the size of their columns, and details to a bounded size.
 */
export function toDraftEntry(it: AuditEvent, now: Instant): DraftEntry {
  const actorId = uuidOrZero(it.actorId ?? zeroId)
  const resourceId = it.resourceId === null ? null : uuidOrZero(it.resourceId)
  const rawActor = it.actorId === null || actorId === it.actorId ? {} : { rawActorId: it.actorId }
  const rawResource = resourceId === it.resourceId ? {} : { rawResourceId: it.resourceId }
  return {
    id: newId(),
    orgId: it.orgId,
    timestamp: now,
    actorType: it.actorType,
    actorId,
    actorEmail: truncateOrNull(it.actorEmail, 255),
    action: it.action.slice(0, 100),
    resourceType: it.resourceType.slice(0, 50),
    resourceId,
    resourceName: truncateOrNull(it.resourceName, 255),
    details: boundDetails(
      toCanonicalizable({ ...it.details, ...rawActor, ...rawResource }) as DraftEntry['details'],
    ),
    ipAddress: truncateOrNull(it.ipAddress, 45),
    userAgent: truncateOrNull(it.userAgent, 500),
    result: it.result,
    errorMessage: it.errorMessage === undefined ? null : it.errorMessage.toWellFormed(),
  }
}

/** An entry in the outbox that cannot be sealed. */
type RejectedEntry = {
  /** Number of the dead letter; undefined where there was no room for it. */
  number: number | undefined
  entry: string
  sha256: string
  reason: string
  isShown: boolean
}

const maxShownLength = 20_000

/** The placeholder for an entry that a chain cannot hold, so that no reader takes the chain for complete. */
export function placeholderEntry(
  chain: string,
  { number, entry, sha256, reason, isShown }: RejectedEntry,
  now: Instant,
): DraftEntry {
  const readable = isShown ? { entry: truncateStorable(entry, maxShownLength) } : {}
  const it: AuditEvent = {
    orgId: orgOfChain(chain),
    actorType: 'system',
    actorId: null,
    actorEmail: null,
    action: 'audit.entry.set_aside',
    resourceType: 'audit_log',
    resourceId: null,
    resourceName: null,
    details: { setAside: number ?? null, reason, sha256, ...readable },
    ipAddress: null,
    userAgent: null,
    result: 'failure',
    errorMessage: 'What happened could not be sealed as it was',
  }
  return toDraftEntry(it, now)
}

const uuidOrZero = (text: string): string => (isId(text) ? text : zeroId)

/**
 * RFC 8785 allows neither lone surrogates nor infinite numbers: a single one would make an entry impossible to
 * seal.
 */
function toCanonicalizable(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed()
  if (typeof value === 'number') return Number.isFinite(value) ? value : null
  if (Array.isArray(value)) return value.map(toCanonicalizable)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key.toWellFormed(), toCanonicalizable(item)]),
  )
}

const truncateOrNull = (text: string | null, maxLength: number): string | null =>
  text === null ? null : truncateStorable(text, maxLength)

const categories: readonly [prefix: string, category: string][] = [
  ['user.login', 'authentication'],
  ['user.logout', 'authentication'],
  ['user.permission', 'authentication'],
  ['device.', 'device'],
  ['script.', 'automation'],
  ['policy.', 'policy'],
  ['automation.policy.', 'policy'],
  ['alert.', 'alert'],
  ['data.', 'compliance'],
  ['organization.', 'organization'],
]

export const categoryOf = (action: string): string =>
  categories.find(([prefix]) => action.startsWith(prefix))?.[1] ?? 'system'

/** Actions in the report of security events. */
export const securityEvents: readonly string[] = [
  'user.login',
  'user.login.failed',
  'user.permission.change',
  'policy.update',
  'policy.create',
  'policy.evaluate',
  'automation.policy.evaluate',
  'agent.source.ip.changed',
]

/** Actions in the report of compliance events. */
export const complianceEvents: readonly string[] = [
  'data.access',
  'data.export',
  'device.create',
  'device.delete',
  'policy.update',
  'policy.evaluate',
  'automation.policy.evaluate',
  'script.execute',
  'organization.update',
]

/** More specific actions that also count as the key. */
const actionAliases: ReadonlyMap<string, readonly string[]> = new Map([
  ['user.permission.change', ['user.role.assign', 'user.access.update']],
  ['agent.enroll', ['device.create']],
])

/** An action, and the more specific actions that count as it. */
export const expandAction = (action: string): readonly string[] => [
  action,
  ...(actionAliases.get(action) ?? []),
]

/** The more specific actions of every action whose name contains this text. */
export const expandActionSubstring = (part: string): readonly string[] =>
  [...actionAliases].flatMap(([name, its]) => (name.includes(part.toLowerCase()) ? its : []))

const loginEvents = ['user.login', 'user.login.failed']
const dataChanges = ['device.create', 'device.delete', 'policy.update', 'organization.update']

export type ActionCount = { action: string; count: number }

/** Sums the counts of these actions, or of all without a list. */
const sumCounts = (counts: ActionCount[], actions?: readonly string[]): number =>
  counts.reduce((sum, one) => sum + (actions?.includes(one.action) === false ? 0 : one.count), 0)

/** Count of each of these events, the most frequent first. */
const countEvents = (counts: ActionCount[], events: readonly string[]): ActionCount[] =>
  events
    .map((action) => ({ action, count: sumCounts(counts, expandAction(action)) }))
    .filter(({ count }) => count > 0)
    .sort((a, b) => b.count - a.count || (a.action < b.action ? -1 : 1))

export function securityReport(counts: ActionCount[]) {
  const byAction = countEvents(counts, securityEvents)
  return {
    totalEvents: sumCounts(byAction),
    loginAttempts: sumCounts(counts, loginEvents),
    failedLogins: sumCounts(counts, ['user.login.failed']),
    permissionChanges: sumCounts(counts, expandAction('user.permission.change')),
    byAction,
  }
}

export function complianceReport(counts: ActionCount[]) {
  const byAction = countEvents(counts, complianceEvents)
  return {
    totalEvents: sumCounts(byAction),
    dataAccess: sumCounts(counts, ['data.access']),
    dataChanges: sumCounts(counts, dataChanges),
    exports: sumCounts(counts, ['data.export']),
    byAction,
  }
}

export function categoryStats(counts: ActionCount[]) {
  const sums = new Map<string, number>()
  for (const { action, count } of counts) {
    const category = categoryOf(action)
    sums.set(category, (sums.get(category) ?? 0) + count)
  }
  const byCategory = [...sums].map(([category, count]) => ({ category, count }))
  return { totalEvents: sumCounts(counts), byCategory: byCategory.sort((a, b) => b.count - a.count) }
}

const actorName = (entry: ChainEntry, userName: string | undefined): string => {
  if (userName !== undefined) return userName
  if (entry.actorEmail !== null) return entry.actorEmail
  if (entry.actorType === 'agent') return `Agent ${entry.actorId}`
  if (entry.actorType === 'api_key') return workloadName(entry) ?? `API key ${entry.actorId.slice(0, 8)}`
  return entry.actorType === 'system' ? 'System' : 'Unknown user'
}

/** The workflow run that acted, when the actor is a workload. */
function workloadName({ details: { workload } }: ChainEntry): string | undefined {
  const { run } = toObject(workload)
  return typeof run === 'string' ? `Workload ${run}` : undefined
}

export function toEntry(entry: ChainEntry, checksum: string, userName: string | undefined): AuditEntry {
  const { id, timestamp, actorId, actorEmail, actorType, action, resourceType, resourceId, resourceName } =
    entry
  const { result, ipAddress, userAgent, details, orgId, errorMessage, seq, prevChecksum } = entry
  return {
    id,
    timestamp,
    user: { id: actorId, name: actorName(entry, userName), email: actorEmail, role: actorType },
    action,
    resource: { type: resourceType, id: resourceId, name: resourceName },
    category: categoryOf(action),
    result,
    ipAddress,
    userAgent,
    details,
    orgId,
    errorMessage,
    seq,
    checksum,
    prevChecksum,
  }
}

const toObject = (value: unknown): Record<string, unknown> =>
  value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : {}

/** The flat shape of `GET /audit-logs`. */
export function toFlatEntry(entry: AuditEntry) {
  const { id, timestamp, action, resource, details, ipAddress, userAgent, user, damage } = entry
  return {
    id,
    timestamp,
    action,
    resource: resource.name ?? resource.id ?? '',
    resourceType: resource.type,
    details: JSON.stringify(details),
    ipAddress,
    userAgent,
    sessionId: typeof details.sessionId === 'string' ? details.sessionId : null,
    user: { name: user.name, email: user.email ?? '', role: user.role, department: '' },
    changes: { before: toObject(details.before), after: toObject(details.after) },
    ...(damage && { damage }),
  }
}

/**
 * The settings of a created or deleted record that go into its audit entry, without the fields that the entry
 * has itself.
 */
export function settingsOf<
  T extends { id: string; orgId: string; createdBy: unknown; createdAt: Instant; updatedAt: Instant },
>({ id: _, orgId: __, createdBy: ___, createdAt: ____, updatedAt: _____, ...settings }: T): object {
  return settings
}
