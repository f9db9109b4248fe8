import { type AuditEntry, auditLogs } from '../audit/contract.ts'
import { listPending } from '../audit/outbox.ts'
import { chainOf } from '../audit/rules.ts'
import { entriesIn, toEntriesWithNames } from '../audit/store.ts'
import { isJsonObject } from '../core/json.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Caller } from '../handler.ts'
import { findUserByEmail } from '../identity/store.ts'
import type { Db } from '../storage/open.ts'
import { amongTexts } from '../storage/query/expressions.ts'
import { findDeletedOrg } from '../tenancy/store.ts'
import { refusalOf } from './access.ts'
import { type Change, type FileField, type Kind, kinds, type Section } from './contract.ts'
import type { InnerCalls } from './ports.ts'
import {
  type AuditedObject,
  canonical,
  changedAt,
  type MissingObject,
  namespaceOf,
  type StoredObject,
  targetOf,
  type Values,
} from './rules.ts'

/** Who changed something, as the audit log says. */
type Culprit = { by: string; at: Instant; action: string; entryId: string; name: string | null }

/** Where the audit log says who did what a plan has found. */
export type AuditTrail = {
  /** What each change is about. */
  subjects: readonly AuditedObject[]
  missing: readonly MissingObject[]
}

/** Whose audit log is read, the caller's, and which tenant it is read about. */
type Scopes = { scope: Scope; tenant: Scope }

/** What changes an object of a file, or its existence. The index audit_logs_configured_failures has these alone. */
export const configuringActions = [
  'partner.create',
  'partner.update',
  'partner.settings.update',
  'organization.create',
  'organization.update',
  'organization.delete',
  'audit.retention.update',
  'site.create',
  'site.update',
  'site.delete',
  'role.create',
  'role.clone',
  'role.update',
  'role.delete',
  'filter.create',
  'filter.update',
  'filter.delete',
  'device_group.create',
  'device_group.update',
  'device_group.delete',
  'script.create',
  'script.update',
  'script.delete',
  'user.invite',
  'user.role.assign',
  'user.access.update',
  'user.remove',
  'webhook.create',
  'webhook.update',
  'webhook.delete',
  'webhook.retry_policy.update',
  'webhook.secret.rotate',
  'webhook.fail',
  'trust.policy.create',
  'trust.policy.update',
  'trust.policy.delete',
  'sso.provider.create',
  'sso.provider.update',
  'sso.provider.delete',
  'sso.provider.status.update',
  'api_key.create',
  'api_key.update',
  'api_key.rotate',
  'api_key.revoke',
  'enrollment_key.create',
  'enrollment_key.update',
  'enrollment_key.rotate',
  'enrollment_key.delete',
]

/** Whether a caller may be told who did something: what the audit log says is for those who may read it. */
export const mayReadAudit = (calls: InnerCalls, caller: Caller): boolean =>
  refusalOf(calls, auditLogs.show, caller) === undefined

/** Entries of what has changed an object, the newest first. On Postgres one of the last moment may not be sealed yet: listPending. */
export const entriesAbout = (db: Db, scope: Scope, { id, orgId }: AuditedObject) =>
  entriesIn(db, scope)
    .select('id')
    .where('chain', '=', chainOf(orgId))
    .where('resource_id', '=', id)
    // Whoever was refused has changed nothing.
    .where('result', '=', 'success')
    .where(amongTexts('action', configuringActions))
    .orderBy('seq', 'desc')

async function readEntry(db: Db, scope: Scope, id: string) {
  const rows = await entriesIn(db, ofOne(scope)).selectAll().where('id', '=', id).execute()
  const [entry] = await toEntriesWithNames(db, rows)
  return entry
}
type Entry = NonNullable<Awaited<ReturnType<typeof readEntry>>>

/** Members of all partners are in the audit log of the service, each under the id of a person who may be in several. */
const isOfTenant = (
  { details }: Pick<AuditEntry, 'details'>,
  { section, orgId }: AuditedObject,
  tenant: Scope,
) =>
  section !== 'memberships' ||
  orgId !== null ||
  (tenant.kind === 'partner' && details.partnerId === tenant.partnerId)

const culpritOf = ({ id, timestamp, user, action, resource }: Entry): Culprit => ({
  by: user.email ?? user.name,
  at: timestamp,
  action,
  entryId: id,
  name: resource.name,
})

/** Bounds of one difference: objects that are looked up, entries that are read of one, and of all. */
const bounds = { objects: 100, ofOne: 20, ofAll: 500 }

/** Changes with who last set each field that differs, and who deleted what is to be made again. */
export async function withCulprits(
  db: Db,
  scopes: Scopes,
  changes: readonly Change[],
  { subjects, missing }: AuditTrail,
): Promise<Change[]> {
  const explained: Change[] = []
  const deletions = new Map<string, Culprit>()
  for (const subject of missing.slice(0, bounds.objects)) {
    const deletion = await deletionOf(db, scopes, subject)
    // Somebody may have renamed it before.
    if (deletion) deletions.set(placeOf(subject, subject.nameInFiles ?? deletion.name), deletion)
  }
  let [objects, entries] = [bounds.objects, bounds.ofAll]
  for (const [at, change] of changes.entries()) {
    const subject = subjects[at]!
    const { section, orgId } = subject
    let culprits: Change['culprits'] = []
    if (change.action === 'update' && subject.id !== null && objects > 0) {
      objects -= 1
      const found = await culpritsOfFields(db, scopes, subject, change, Math.min(entries, bounds.ofOne))
      entries -= found.read
      culprits = found.culprits
    } else if (change.action === 'create') {
      let deletion = deletions.get(placeOf(subject, change.name))
      if (!deletion && objects > 0) {
        const id = await formerId(db, scopes.tenant, change)
        if (id !== undefined) {
          objects -= 1
          deletion = await deletionOf(db, scopes, {
            section,
            orgId: section === 'organizations' ? id : orgId,
            id,
          })
        }
      }
      culprits = deletion ? [said(null, deletion)] : []
    }
    explained.push({ ...change, culprits })
  }
  return explained
}

/**
 * Under which id the audit log has the deletion of what no set remembers: that of a membership is one of the person, and an
 * organization takes with it whose it was.
 */
async function formerId(db: Db, tenant: Scope, { section, name }: Change): Promise<string | undefined> {
  if (section === 'memberships') return (await findUserByEmail(db, name))?.id
  return section === 'organizations' ? findDeletedOrg(db, tenant, name) : undefined
}

const placeOf = (subject: AuditedObject, name: string | null): string =>
  JSON.stringify([subject.section, namespaceOf(subject), name])

const said = (field: string | null, { by, at, action, entryId }: Culprit) => ({
  field,
  by,
  at,
  action,
  entryId,
})

/** The newest entry of each field: entries are read until all fields have one. */
async function culpritsOfFields(
  db: Db,
  { scope, tenant }: Scopes,
  subject: AuditedObject,
  change: Change,
  limit: number,
) {
  const kind = kinds[subject.section]
  const names = Object.keys({ ...change.before, ...change.after })
  const left = new Set(kind.fields.filter(({ name }) => names.includes(name)))
  const culprits: NonNullable<Change['culprits']> = []
  let read = 0
  for (const { id } of await entriesAbout(db, scope, subject).limit(limit).execute()) {
    if (left.size === 0) break
    read += 1
    const entry = await readEntry(db, scope, id)
    if (!entry || !isOfTenant(entry, subject, tenant)) continue
    for (const field of left) {
      if (!isChanging(entry, field, kind, change)) continue
      left.delete(field)
      culprits.push(said(field.name, culpritOf(entry)))
    }
  }
  return { culprits, read }
}

/** Whether an entry says that a field was set. What is made has all its fields. */
function isChanging(
  { action, details }: Entry,
  { name: inFile, field, part, guard }: FileField,
  { recorded = {}, merged }: Kind,
  change: Change,
): boolean {
  if (/\.(create|clone|invite)$/.test(action)) return true
  if (part?.isBody && action !== actionOf(part.entry)) return false
  const name = recorded[field] ?? field
  const { before, after } = details as { before?: Values | null; after?: Values | null }
  const records = [before ?? {}, after ?? {}]
  const named = records.filter((side) => Object.hasOwn(side, name)).map((side) => side[name])
  // Where the value is the whole body, the entry may have that in place of a record.
  const sides = part?.isBody && named.length === 0 ? records : named
  const asked = [change.before?.[inFile], change.after?.[inFile]].filter((side) => side !== undefined)
  const isElsewhere = (side: unknown) => !asked.some((one) => isOfOnePart(one, side))
  if ((merged.includes(inFile) || part?.isBody) && sides.every(isElsewhere)) return false
  const [was, is] = sides.map((side) => canonical(side))
  // Some entries have more than what has changed, and of a secret both sides are hidden.
  return sides.length > 0 && (guard !== undefined || was !== is || /\*{8}/.test(was!))
}

/** Whether two differences of a value are about a part in common: of objects they have only the keys that differ. */
function isOfOnePart(one: unknown, other: unknown): boolean {
  if (!isJsonObject(one) || !isJsonObject(other)) return true
  return Object.keys(one).some((key) => Object.hasOwn(other, key) && isOfOnePart(one[key], other[key]))
}

/** The action of an endpoint. */
const actionOf = ({ audit }: { audit?: object | undefined }): string =>
  audit !== undefined && 'action' in audit ? String(audit.action) : ''

/** Who deleted an object, however long ago. */
async function deletionOf(db: Db, scopes: Scopes, subject: AuditedObject): Promise<Culprit | undefined> {
  const { remove } = kinds[subject.section]
  if (!remove) return undefined
  const about = entriesAbout(db, scopes.scope, subject).where('action', '=', actionOf(remove))
  const entry = await newestOf(db, scopes, subject, about)
  return entry && culpritOf(entry)
}

/** The newest of these entries that is about the object in its tenant. */
async function newestOf(
  db: Db,
  { scope, tenant }: Scopes,
  subject: AuditedObject,
  about: ReturnType<typeof entriesAbout>,
): Promise<Entry | undefined> {
  for (const { id } of await about.limit(bounds.ofOne).execute()) {
    const entry = await readEntry(db, scope, id)
    if (entry && isOfTenant(entry, subject, tenant)) return entry
  }
  return undefined
}

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
