import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { errors, type Fault, invalid, Problem } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { safeParse } from '../core/schema.ts'
import type { Instant } from '../core/time.ts'
import { difference, mergePatch } from '../tenancy/rules.ts'
import { type Change, type FileField, type Kind, keyOf, kinds, type Section, sections } from './contract.ts'

export type Values = Record<string, unknown>

/** What is asked for. */
export type ConfigurationRequest = {
  set: string
  document: Readonly<Record<string, readonly Values[]>>
  adopt: boolean
  prune: boolean
  pruneLimit?: number | undefined
  withoutSecrets?: readonly OmittedSecret[] | undefined
}

/** A field of an object of a document that its caller has no secret for. */
export type OmittedSecret = { section: Section; object: number; field: string }

/** Ids of what some fields name. */
export type Ids = Readonly<Record<string, string | string[]>>

/** What an object of a rollback is and names: since the apply others may have come to its names. */
export type Identity = {
  id: string
  /** null: of the partner. */
  orgId: string | null
  /** It is made again, with another id. */
  isDeleted: boolean
  /** What the files of the set called it before the apply, where they may rename it. */
  nameInFiles: string | null
  references: Ids
}

/** An object as a file has it, or a rollback. */
export type DesiredObject = {
  section: Section
  /** Where it stands in the request. */
  path: string
  /** Slug of its organization; undefined: of the caller's own tenant. */
  org: string | undefined
  key: string
  renamedFrom: string | undefined
  /** The fields that the file names, without those above. */
  values: Values
  /** Fields that hold a secret which is not at hand. */
  omitted: readonly string[]
  /** Of an object of a rollback. */
  identity?: Identity | undefined
}

/** An object as it is stored. */
export type StoredObject = {
  section: Section
  id: string
  /** null: of the partner. */
  orgId: string | null
  key: string
  /** As the endpoints return it. */
  record: Values
  /** Everybody can refer to it, and nobody changes it. */
  isBuiltIn: boolean
}

/** Ids of what a file refers to, by the names of its fields. */
export type References = ReadonlyMap<string, string | string[]>

/** An object as the audit log knows it. */
export type AuditedObject = { section: Section; id: string | null; orgId: string | null }

/** What a set owned when somebody deleted it; `nameInFiles`: null where its files cannot rename it. */
export type MissingObject = AuditedObject & { nameInFiles: string | null }

/** The organization in which an object has its name; null: the partner, as its organizations do. */
export const namespaceOf = ({ section, orgId }: Pick<StoredObject, 'section' | 'orgId'>): string | null =>
  section === 'organizations' ? null : orgId

/** When an object was changed last, or made, where its record does not say that. */
export const changedAt = ({ record: { createdAt, updatedAt = createdAt } }: StoredObject): Instant =>
  String(updatedAt)

/** Two texts are equal when the values are: objects with their keys in any order. */
export const canonical = (value: unknown): string => canonicalize(value) ?? ''

const isSection = (name: string): name is Section => (sections as readonly string[]).includes(name)

/** Whether files of an organization have a section, or, with null, those of a whole partner. */
export const isSectionOf = (orgId: string | null, section: Section): boolean =>
  orgId === null || !kinds[section].wholePartner

/** The sections that a document manages, and the faults of those that there are not. `orgId`: whose files they are. */
export function sectionsOf(
  document: Readonly<Record<string, unknown>>,
  orgId: string | null,
): { named: Section[]; faults: Fault[] } {
  const whyNot = (name: string): string | undefined => {
    if (!isSection(name)) return 'is not a section of a file'
    if (isSectionOf(orgId, name)) return undefined
    return 'is of the partner, and these files are of one organization: leave it out'
  }
  const faults = Object.keys(document).flatMap((name) => {
    const message = whyNot(name)
    return message === undefined ? [] : [{ path: `body.document.${name}`, message }]
  })
  const named = sections.filter((section) => Object.hasOwn(document, section))
  return { named: named.filter((section) => whyNot(section) === undefined), faults }
}

/** An object of a document: what it says, or its faults of form. */
export function readObject(
  section: Section,
  at: number,
  object: Values,
  omitted: readonly string[] = [],
): DesiredObject | Fault[] {
  const path = `body.document.${section}.${at}`
  const { schema, key } = kinds[section]
  const read = safeParse(schema, object)
  if (!read.success) return read.error.issues.flatMap((issue) => formFaults(path, issue, object))
  const { org, renamedFrom, ...values } = read.data as Values & { org?: string; renamedFrom?: string }
  // In the one spelling of names, as the key is.
  const former = renamedFrom === undefined ? undefined : String(keyOf(section, renamedFrom))
  return { section, path, org, key: String(values[key]), renamedFrom: former, values, omitted }
}

/** Secrets for a place that the file does not name would be sent to wherever somebody else has it lead by then. */
export function isDestinationOmitted(
  { bound }: Kind,
  { values, omitted }: DesiredObject,
  present: Values,
): boolean {
  if (!bound || present[bound.to] === undefined) return false
  const { [bound.field]: secrets = bound.none, [bound.to]: place } = values
  const hasSecrets = omitted.includes(bound.field) || canonical(secrets) !== canonical(bound.none)
  return hasSecrets && place === undefined && !omitted.includes(bound.to)
}

/** The values with what stands for secrets that are not at hand, where they have to be said again: in a plan alone. */
export function withBoundSecret(
  { bound, placeholders }: Kind,
  { values, omitted }: DesiredObject,
  present: Values,
): Values {
  if (!bound || !omitted.includes(bound.field)) return values
  const [is, was] = [values[bound.to], present[bound.to]]
  if (typeof is !== 'string' || !bound.isElsewhere(is, String(was))) return values
  return { ...values, [bound.field]: placeholders?.[bound.field] }
}

type Issue = { code?: string | undefined; path: PropertyKey[]; message: string; keys?: string[] }

function formFaults(path: string, issue: Issue, object: Values): Fault[] {
  const at = [path, ...issue.path.map(String)].join('.')
  if (issue.code === 'unrecognized_keys')
    return (issue.keys ?? []).map((key) => ({ path: `${at}.${key}`, message: 'is not a known field' }))
  const present = issue.path.reduce<unknown>(
    (value, key) => (value as Values | undefined)?.[key as string],
    object,
  )
  const isMissing = /^invalid_(type|value)$/.test(issue.code ?? '') && present === undefined
  return [{ path: at, message: isMissing ? 'is required' : issue.message }]
}

/** Without `org` an object is of the organization that is configured (`own`): named and left out are the same. */
export const orgSlugOf = <Org>(section: Section, org: Org | undefined, own: string | undefined) =>
  org ?? (kinds[section].owner === 'partner' ? undefined : own)

/** What the files call an object, of all that they have. Neither a section nor a slug has a space. */
export const objectLabel = (section: Section, org: unknown, key: unknown): string =>
  `${section} ${String(org ?? '')} ${String(key)}`

/** Two objects of one name in one organization would be one object with two wishes: each place is said. */
export function duplicateFaults(items: readonly DesiredObject[]): Map<DesiredObject, Fault> {
  const same = Map.groupBy(items, ({ section, org, key }) => objectLabel(section, org, key))
  const faults = new Map<DesiredObject, Fault>()
  for (const all of same.values()) {
    if (all.length === 1) continue
    const times = all.length === 2 ? 'twice' : `${all.length} times`
    for (const item of all)
      faults.set(item, {
        path: `${item.path}.${kinds[item.section].key}`,
        message: `"${item.key}" occurs ${times}`,
      })
  }
  return faults
}

/** The field that names another object of the same section. */
const parentField = ({ fields, section }: Kind): FileField | undefined =>
  fields.find(({ refersTo }) => refersTo === section)

/** Parents before those that name them. `cycles`: what names itself in the end. */
export function parentsFirst<T>(
  of: readonly T[],
  nameOf: (one: T) => string,
  parentOf: (one: T) => string | undefined,
): { ordered: T[]; cycles: T[] } {
  const byName = new Map(of.map((one) => [nameOf(one), one]))
  const ordered: T[] = []
  const cycles: T[] = []
  const done = new Set<T>()
  for (const start of of) {
    // Without recursion: a chain may be as long as the list.
    const chain: T[] = []
    for (let one: T | undefined = start; one !== undefined && !done.has(one); ) {
      if (chain.includes(one)) {
        cycles.push(one)
        break
      }
      chain.push(one)
      const parent = parentOf(one)
      one = parent === undefined ? undefined : byName.get(parent)
    }
    for (const one of chain.reverse()) {
      if (done.has(one)) continue
      done.add(one)
      ordered.push(one)
    }
  }
  return { ordered, cycles }
}

export function itemsInOrder(
  kind: Kind,
  items: readonly DesiredObject[],
): { ordered: DesiredObject[]; cycles: DesiredObject[] } {
  const field = parentField(kind)
  if (!field) return { ordered: [...items], cycles: [] }
  const place = (org: string | undefined, key: unknown) => JSON.stringify([org, key])
  return parentsFirst(
    items,
    ({ org, key }) => place(org, key),
    ({ org, values }) =>
      typeof values[field.name] === 'string' ? place(org, values[field.name]) : undefined,
  )
}

/** What is deleted first is what names another. */
export function childrenFirst(kind: Kind, stored: readonly StoredObject[]): StoredObject[] {
  const field = parentField(kind)
  if (!field) return [...stored]
  const { ordered } = parentsFirst(
    stored,
    ({ id }) => id,
    ({ record }) => (record[field.field] as string | null) ?? undefined,
  )
  return ordered.reverse()
}

/** The fields of a stored object as a file has them. A reference that the caller may not see is left out. */
export function toFile(
  { fields, spelled }: Kind,
  record: Values,
  nameOf: (section: Section, id: string) => string | undefined,
): Values {
  const values: Values = {}
  for (const { name, field, refersTo, isList, isNullable } of fields) {
    const value = record[field]
    if (value === undefined || (value === null && !isNullable && !spelled[field])) continue
    if (refersTo !== undefined && isList && Array.isArray(value)) {
      const names = value.map((id) => nameOf(refersTo, String(id)))
      if (names.every((one) => one !== undefined)) values[name] = names.toSorted()
    } else if (refersTo !== undefined && typeof value === 'string') {
      const named = nameOf(refersTo, value)
      if (named !== undefined) values[name] = named
    } else values[name] = spelled[field]?.toFile(value) ?? value
  }
  return values
}

/** Values with `shown` in place of each secret in them. */
export function guarded({ fields }: Kind, values: Values, shown: (secret: string) => string): Values {
  const secret = fields.filter(({ name, guard }) => guard !== undefined && Object.hasOwn(values, name))
  if (secret.length === 0) return values
  const hidden = secret.map(({ name, guard }) => [name, guard!(values[name], shown) ?? values[name]])
  return { ...values, ...Object.fromEntries(hidden) }
}

/** Fields of an object that hold a secret. */
export function secretFields({ fields }: Kind, values: Values): string[] {
  const holds = ({ name, guard }: FileField): boolean => {
    let found = false
    guard?.(values[name], (secret) => {
      found = true
      return secret
    })
    return found
  }
  return fields.filter(holds).map(({ name }) => name)
}

const hidden = '********'

/** Fingerprints of secrets as people see them: which differ is all that is said. */
export function hiddenDifference(
  kind: Kind,
  before: Values,
  after: Values,
): { before: Values; after: Values } {
  const known = new Set<string>()
  const was = guarded(kind, before, (print) => {
    known.add(print)
    return hidden
  })
  const is = guarded(kind, after, (print) => (known.has(print) ? hidden : `${hidden} (changed)`))
  return { before: was, after: is }
}

/** `omitted`: fields of which what stands for them is not shown either. */
export const hiddenValues = (kind: Kind, values: Values, omitted: readonly string[] = []): Values => ({
  ...guarded(kind, values, () => hidden),
  ...Object.fromEntries(omitted.filter((name) => Object.hasOwn(values, name)).map((name) => [name, hidden])),
})

/** The fields in which a file wants another value than there is, with that value. */
export function differing(kind: Kind, present: Values, wanted: Values): Values {
  const changed: Values = {}
  for (const { name, field } of kind.fields) {
    const value = wanted[name]
    if (value === undefined || kind.initial?.includes(field)) continue
    const before = present[name]
    const after =
      kind.merged.includes(name) && isJsonObject(before) && isJsonObject(value)
        ? mergePatch(before, value)
        : value
    if (before !== after && canonical(before) !== canonical(after)) changed[name] = after
  }
  return changed
}

const longest = 200

/** A value of a plan: long texts are cut, and what was cut is told apart by its hash. */
function cut(value: unknown): unknown {
  if (typeof value === 'string' && value.length > longest) {
    const mark = hash('sha256', value, 'hex').slice(0, 12)
    return `${value.slice(0, longest).toWellFormed()}… [${value.length} characters, sha256 ${mark}]`
  }
  if (Array.isArray(value)) return value.map(cut)
  if (!isJsonObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, cut(item)]))
}

/** Most characters that a change shows of its fields, before and after each. */
const maxShown = 4096

/** What a plan shows of a change. Free objects may hold secrets: they are hidden as in the audit log. */
export function shownDifference({ fields }: Kind, before: Values | null, after: Values | null) {
  const free = fields.filter(({ isFree }) => isFree).map(({ name }) => name)
  const shown = difference(before ?? {}, after ?? {}, (field) => free.includes(field))
  const bounded = (values: Values) => {
    const short = cut(values) as Values
    const isShort = JSON.stringify(short).length <= maxShown
    return isShort ? short : Object.fromEntries(Object.keys(short).map((key) => [key, '[long]']))
  }
  return {
    before: before === null ? null : bounded(shown.before),
    after: after === null ? null : bounded(shown.after),
  }
}

/** Deletions of a kind that need no number: a tenth of what the set owns, and one in any case. */
export const freeDeletions = (owned: number): number => Math.max(1, Math.floor(owned / 10))

/** Why the deletions of a section are refused; undefined: they are not. */
export function pruneRefusal(
  section: Section,
  { deletions, owned, limit }: { deletions: number; owned: number; limit: number | undefined },
): string | undefined {
  if (deletions <= (limit ?? freeDeletions(owned))) return undefined
  const allowed = limit === undefined ? 'more than a tenth' : `and the limit is ${limit}`
  return `would delete ${deletions} of ${owned} ${section}, ${allowed}: --prune-limit ${deletions} allows it`
}

export const isExpired = ({ expiresAt }: Values, now: Instant): boolean =>
  typeof expiresAt === 'string' && expiresAt <= now

/** Where the endpoints of a kind find an object, and under which id they audit it. */
export const targetOf = (
  kind: Kind,
  { id, record }: StoredObject,
): { params: { id: string }; query: Values } => kind.target?.(record) ?? { params: { id }, query: {} }

/** Whether a reference leads elsewhere than a record: ids decide, as an object may have the name of another. */
export function isElsewhere(wanted: string | readonly string[], present: unknown): boolean {
  if (typeof wanted === 'string') return wanted !== present
  return canonical(wanted.toSorted()) !== canonical(Array.isArray(present) ? present.toSorted() : present)
}

/** The faults of an object that an endpoint refused, at the fields of the file. */
export function faultsOf(problem: Problem, kind: Kind, path: string): Fault[] {
  const { details } = problem.extras
  const isFault = (one: unknown): one is Fault =>
    typeof (one as Fault | null)?.path === 'string' && typeof (one as Fault).message === 'string'
  const faults = problem.code === 'invalid_request' && Array.isArray(details) ? details.filter(isFault) : []
  if (faults.length === 0) return [{ path, message: problem.message }]
  return faults.map((fault) => {
    const [, field = '', ...rest] = fault.path.split('.')
    const name = kind.fields.find((one) => one.field === field)?.name ?? (field === 'orgId' ? 'org' : field)
    return { path: [path, name, ...rest].filter((part) => part !== '').join('.'), message: fault.message }
  })
}

/** Whether something stands in the way of a change, whoever makes it. */
export const isConflict = ({ code }: Problem): boolean => errors[code].exit === 6

/** The endpoint refuses the caller (401, 403 or 428), whatever the file says. */
export const isRefusal = ({ status }: Problem): boolean => status === 401 || status === 403 || status === 428

const maxNamed = 10

/** The refusal of a plan that is out of date, with the objects that are known to have changed. */
export function outdatedPlan(names: readonly string[]): Problem {
  const more = names.length > maxNamed ? [`${names.length - maxNamed} more`] : []
  const what = [...names.slice(0, maxNamed), ...more]
  const since = what.length === 0 ? '' : `. Changed since: ${what.join(', ')}`
  return new Problem('conflict', `The plan is out of date; plan again${since}`)
}

/** @throws forbidden with what is refused, if anything is */
export function checkNothingRefused(changes: readonly Change[]): void {
  const refused = changes.filter((change) => change.refused !== null)
  if (refused.length === 0) return
  const lines = refused
    .slice(0, 20)
    .map(({ action, section, name, refused: why }) => `${action} ${section} "${name}": ${why}`)
  const more = refused.length - lines.length
  throw new Problem('forbidden', [...lines, ...(more > 0 ? [`and ${more} more`] : [])].join('; '), {
    details: lines,
  })
}

/** @throws invalid_request with all faults, and with what is refused besides, in the order of the file */
export function checkNoFaults(faults: readonly Fault[], refusals: readonly Fault[] = []): void {
  if (faults.length === 0) return
  throw invalid([...faults, ...refusals].toSorted((one, other) => inOrder(one.path, other.path)))
}

const inOrder = (one: string, other: string): number => one.localeCompare(other, 'en', { numeric: true })

export function totalsOf(changes: readonly Change[], left: number) {
  const count = (action: Change['action']) => changes.filter((change) => change.action === action).length
  return {
    create: count('create'),
    update: count('update'),
    delete: count('delete'),
    adopt: count('adopt'),
    release: count('release'),
    refused: changes.filter(({ refused }) => refused !== null).length,
    left,
  }
}

/** With the id by which people and the audit log know it. */
export const shownAs = (kind: Kind, stored: StoredObject): StoredObject => ({
  ...stored,
  id: targetOf(kind, stored).params.id,
})

/** What an endpoint gets for some fields of a file. */
export function bodyOf(
  { fields, spelled }: Kind,
  values: Values,
  references: References,
  names: readonly string[],
): Values {
  const said = fields.filter(({ name }) => names.includes(name) && values[name] !== undefined)
  return Object.fromEntries(
    said.map(({ name, field }) => [
      field,
      references.get(name) ?? spelled[field]?.toBody(values[name]) ?? values[name],
    ]),
  )
}
