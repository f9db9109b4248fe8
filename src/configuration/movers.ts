import type { AuditEntry } from '../audit/contract.ts'
import { listPending } from '../audit/outbox.ts'
import { entriesIn } from '../audit/store.ts'
import type { Scope } from '../core/scope.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import {
  actionOf,
  bounds,
  type Culprit,
  configuringActions,
  culpritOf,
  deletionOf,
  entriesAbout,
  isOfTenant,
  newestOf,
  readEntry,
  type Scopes,
} from './audit-trail.ts'
import { type Kind, kinds, type Section } from './contract.ts'
import {
  type AuditedObject,
  canonical,
  changedAt,
  type MissingObject,
  type StoredObject,
  targetOf,
  type Values,
} from './rules.ts'

/** Most that a refusal names. */
const maxNamed = 10

/** What has moved since a plan, with who did it, and the sections that this is of. */
export async function changesSince(
  db: Db,
  scopes: Scopes,
  on: {
    named: readonly Section[]
    moved: readonly StoredObject[]
    missing: readonly MissingObject[]
    since: Instant
    now: Instant
    /** What each entry of the apply that is refused says: it has moved nothing. */
    details: Values
  },
): Promise<{ names: string[]; ofSections: ReadonlySet<Section> }> {
  const lines: string[] = []
  // Whoever applies at the same moment has just committed, and is the one to name.
  const pending = await pendingSince(db, scopes.scope, on)
  const { tenant } = scopes
  for (const [at, stored] of on.moved.entries()) {
    const { section, key, orgId } = stored
    const about = { section, orgId, id: targetOf(kinds[section], stored).params.id }
    const waiting = pending.find((one) => isAbout(one, about, tenant, configuringActions))
    const entry = waiting ?? (at < maxNamed ? await newestSince(db, scopes, about, on.since) : undefined)
    lines.push(`${section} "${key}" (${entry ? saidOf(culpritOf(entry)) : changedAt(stored)})`)
  }
  const found = await recently(db, scopes, on)
  for (const subject of on.missing.slice(0, maxNamed)) {
    const { remove } = kinds[subject.section]
    const waiting = remove && pending.find((one) => isAbout(one, subject, tenant, [actionOf(remove)]))
    const deletion = waiting ? culpritOf(waiting) : await deletionOf(db, scopes, subject)
    if (deletion && deletion.at > on.since) found.set(deletion.entryId, deletion)
  }
  const others = [...found.values()]
  const isNamed = (section: Section) =>
    on.moved.some((stored) => stored.section === section) ||
    others.some(({ action }) => actionsOf(section).includes(action))
  return {
    names: [...lines, ...others.map((one) => `${one.action} "${one.name ?? ''}" (${saidOf(one)})`)],
    ofSections: new Set(on.named.filter(isNamed)),
  }
}

/** Actions that change objects of a section, or delete them. */
function actionsOf(section: Section): string[] {
  const { update, ofSystem, remove, parts = [] }: Kind = kinds[section]
  const entries = [update, ofSystem?.update, remove, ...parts.map(({ entry }) => entry)]
  return entries.flatMap((entry) => (entry ? [actionOf(entry)] : []))
}

const newestSince = (db: Db, scopes: Scopes, about: AuditedObject, since: Instant) =>
  newestOf(db, scopes, about, entriesAbout(db, scopes.scope, about).where('timestamp', '>', since))

/** What has been done since a time and is not sealed yet, the newest first. */
async function pendingSince(
  db: Db,
  scope: Scope,
  { since, details: own }: { since: Instant; details: Values },
): Promise<AuditEntry[]> {
  const pending = await listPending(db, scope, lookBack.entries)
  const isOwn = ({ configuration }: Values) => canonical(configuration) === canonical(own.configuration)
  return pending.filter(
    ({ result, timestamp, details }) => result === 'success' && timestamp > since && !isOwn(details),
  )
}

const isAbout = (
  entry: AuditEntry,
  about: AuditedObject,
  tenant: Scope,
  actions: readonly string[],
): boolean =>
  entry.resource.id === about.id &&
  entry.orgId === about.orgId &&
  actions.includes(entry.action) &&
  isOfTenant(entry, about, tenant)

const saidOf = ({ by, at, entryId }: Culprit): string => `by ${by} at ${at}, audit entry ${entryId}`

/** How far back is looked for what no set owns, and among how many entries: on SQLite the service does nothing else meanwhile. */
const lookBack = { seconds: 3600, entries: 2000 }

/** To which set an object belongs is in no record. */
const ownershipActions = ['config.adopt', 'config.release']

/** Kinds whose records do not say when they were changed last. */
const undated: readonly Section[] = ['memberships', 'apiKeys', 'enrollmentKeys']

/**
 * What was deleted since a time, of some kinds, and what was changed that has no time of its own: memberships, keys, some
 * parts, ownership.
 */
async function recently(
  db: Db,
  { scope, tenant }: Scopes,
  on: { named: readonly Section[]; since: Instant; now: Instant; details: Values },
): Promise<Map<string, Culprit>> {
  const { named, since, now } = on
  const found = new Map<string, Culprit>()
  if (since < addSeconds(now, -lookBack.seconds)) return found
  const sources: Source[] = [{ scope: tenant, actions: actionsWithoutTime(named), isMeant: () => true }]
  // Those of a partner's members are in the audit log of the service.
  if (named.includes('memberships') && tenant.kind === 'partner' && scope.kind === 'system')
    sources.push({
      scope,
      actions: actionsWithoutTime(['memberships']),
      isMeant: (entry) => entry.orgId === null && isOfTenant(entry, ofPartner, tenant),
    })
  for (const { scope: whose, actions, isMeant } of sources) {
    const pending = await pendingSince(db, whose, on)
    const waiting = pending.filter((one) => actions.has(one.action) && isMeant(one))
    for (const entry of waiting.slice(0, maxNamed)) found.set(entry.id, culpritOf(entry))
    const newest = await entriesIn(db, whose)
      .select(['id', 'action', 'result'])
      .where('timestamp', '>', since)
      .orderBy('timestamp', 'desc')
      .limit(lookBack.entries)
      .execute()
    const matching = newest.filter(({ action, result }) => result === 'success' && actions.has(action))
    for (const { id } of matching.slice(0, bounds.objects)) {
      if (found.size >= maxNamed) break
      const entry = await readEntry(db, whose, id)
      if (entry && isMeant(entry)) found.set(id, culpritOf(entry))
    }
  }
  return found
}

type Source = { scope: Scope; actions: ReadonlySet<string>; isMeant(entry: AuditEntry): boolean }

const ofPartner: AuditedObject = { section: 'memberships', id: null, orgId: null }

/** Actions whose objects do not say when they were changed last, or are not there any more. */
function actionsWithoutTime(named: readonly Section[]): Set<string> {
  const removals = named.flatMap((section) => kinds[section].remove ?? [])
  const ofUndated = undated.filter((section) => named.includes(section)).flatMap(actionsOf)
  const apart = named.flatMap((section) => kinds[section].parts ?? []).filter(({ shownBy }) => shownBy)
  const others = [...removals, ...apart.map(({ entry }) => entry)].map(actionOf)
  return new Set([...ownershipActions, ...ofUndated, ...others])
}
