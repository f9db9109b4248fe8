import { type AuditEntry, auditLogs } from '../audit/contract.ts'
import { chainOf } from '../audit/rules.ts'
import { entriesIn, toEntriesWithNames } from '../audit/store.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Caller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { amongTexts } from '../storage/query/expressions.ts'
import { refusalOf } from './access.ts'
import { kinds } from './contract.ts'
import type { InnerCalls } from './ports.ts'
import type { AuditedObject, MissingObject } from './rules.ts'

/** Who changed something, as the audit log says. */
export type Culprit = { by: string; at: Instant; action: string; entryId: string; name: string | null }

/** Where the audit log says who did what a plan has found. */
export type AuditTrail = {
  /** What each change is about. */
  subjects: readonly AuditedObject[]
  missing: readonly MissingObject[]
}

/** Whose audit log is read, the caller's, and which tenant it is read about. */
export type Scopes = { scope: Scope; tenant: Scope }

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

export async function readEntry(db: Db, scope: Scope, id: string) {
  const rows = await entriesIn(db, ofOne(scope)).selectAll().where('id', '=', id).execute()
  const [entry] = await toEntriesWithNames(db, rows)
  return entry
}
export type Entry = NonNullable<Awaited<ReturnType<typeof readEntry>>>

/** Members of all partners are in the audit log of the service, each under the id of a person who may be in several. */
export const isOfTenant = (
  { details }: Pick<AuditEntry, 'details'>,
  { section, orgId }: AuditedObject,
  tenant: Scope,
) =>
  section !== 'memberships' ||
  orgId !== null ||
  (tenant.kind === 'partner' && details.partnerId === tenant.partnerId)

export const culpritOf = ({ id, timestamp, user, action, resource }: Entry): Culprit => ({
  by: user.email ?? user.name,
  at: timestamp,
  action,
  entryId: id,
  name: resource.name,
})

/** Bounds of one difference: objects that are looked up, entries that are read of one, and of all. */
export const bounds = { objects: 100, ofOne: 20, ofAll: 500 }

/** The action of an endpoint. */
export const actionOf = ({ audit }: { audit?: object | undefined }): string =>
  audit !== undefined && 'action' in audit ? String(audit.action) : ''

/** Who deleted an object, however long ago. */
export async function deletionOf(
  db: Db,
  scopes: Scopes,
  subject: AuditedObject,
): Promise<Culprit | undefined> {
  const { remove } = kinds[subject.section]
  if (!remove) return undefined
  const about = entriesAbout(db, scopes.scope, subject).where('action', '=', actionOf(remove))
  const entry = await newestOf(db, scopes, subject, about)
  return entry && culpritOf(entry)
}

/** The newest of these entries that is about the object in its tenant. */
export async function newestOf(
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
