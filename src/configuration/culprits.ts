import { isJsonObject } from '../core/json.ts'
import type { Scope } from '../core/scope.ts'
import { findUserByEmail } from '../identity/store.ts'
import type { Db } from '../storage/open.ts'
import { findDeletedOrg } from '../tenancy/store.ts'
import {
  type AuditTrail,
  actionOf,
  bounds,
  type Culprit,
  culpritOf,
  deletionOf,
  type Entry,
  entriesAbout,
  isOfTenant,
  readEntry,
  type Scopes,
} from './audit-trail.ts'
import { type Change, type FileField, type Kind, kinds } from './contract.ts'
import { type AuditedObject, canonical, namespaceOf, type Values } from './rules.ts'

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
