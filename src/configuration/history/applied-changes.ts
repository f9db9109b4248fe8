import { isJsonObject } from '../../core/json.ts'
import { separateSecrets } from '../../tenancy/rules.ts'
import { type Kind, kinds, type Section, sections } from '../contract.ts'
import { addCounts, type Counts } from '../endings.ts'
import { canonical, type Ids, secretFields, type Values } from '../rules.ts'

/** One change of an apply as it is kept, with whole values in the form of a file, and without secrets. */
export type AppliedChange = {
  section: Section
  /** `end`: it ended with its organization. */
  action: 'create' | 'update' | 'delete' | 'adopt' | 'release' | 'end'
  id: string
  /** null: of the partner. An organization is its own. */
  orgId: string | null
  key: string
  /** What the files of the set called it before, where they may rename it: somebody may have renamed it. */
  nameInFiles: string | null
  /** The fields that it changed, or of what it deleted. */
  before: Values | null
  /** The fields that it changed, or of what it made. */
  after: Values | null
  /** Ids of what the fields name: names change. */
  ids: { before: Ids; after: Ids }
  /** Fields from before of which something is not kept: secrets, and what the service does not tell. */
  withheld: string[]
  /** Why what it deleted is not made again, if not for what is withheld. */
  notMadeAgain?: string
  /** How much of each kind it ended besides, for good. */
  ends?: Readonly<Counts>
  /** What a rollback has made again had this id. */
  formerId?: string
}

/** The id that an object has today: what was made again has another. */
export type IdToday = (id: string) => string

/** The ids of today of what later rollbacks have made again, in their order. */
export function idsToday(restored: readonly AppliedChange[]): IdToday {
  const ids = new Map(
    restored.flatMap(({ id, formerId }) => (formerId === undefined ? [] : [[formerId, id]])),
  )
  const today: IdToday = (id) => {
    const next = ids.get(id)
    return next === undefined ? id : today(next)
  }
  return today
}

/** What is of an object, of the one that it is today. */
export const ofToday = <T extends { id: string; orgId: string | null }>(one: T, today: IdToday): T => ({
  ...one,
  id: today(one.id),
  orgId: one.orgId && today(one.orgId),
})

export const withIdsToday = (change: AppliedChange, today: IdToday): AppliedChange => ({
  ...ofToday(change, today),
  ids: { before: mapIds(change.ids.before, today), after: mapIds(change.ids.after, today) },
})

const mapIds = (ids: Ids, today: IdToday): Ids =>
  Object.fromEntries(
    Object.entries(ids).map(([name, id]) => [name, typeof id === 'string' ? today(id) : id.map(today)]),
  )

/** Ids of what some fields of a record name. */
export const idsIn = (section: Section, record: Values, fields: Values | null): Ids =>
  Object.fromEntries(
    kinds[section].fields.flatMap(({ name, field, refersTo }) => {
      const value = record[field]
      const isNamed = refersTo !== undefined && fields !== null && Object.hasOwn(fields, name)
      return isNamed && (typeof value === 'string' || Array.isArray(value)) ? [[name, value]] : []
    }),
  )

/** Values of a change that may be kept, with the fields from before of which they do not say everything. */
export function storableValues(
  kind: Kind,
  before: Values | null,
  after: Values | null,
): Pick<AppliedChange, 'before' | 'after' | 'withheld'> {
  const [was, is] = [keptOf(kind, before), keptOf(kind, after)]
  const changed = Object.keys(before ?? {}).filter(
    (name) => canonical(was.secrets[name]) !== canonical(is.secrets[name]),
  )
  const isKept = (name: string, { values }: typeof was) => Object.hasOwn(values ?? {}, name)
  const gone = Object.keys(before ?? {}).filter((name) => !isKept(name, was))
  // Nobody could tell whether these are still as the apply left them.
  const unknown = Object.keys(after ?? {}).filter((name) => isKept(name, was) && !isKept(name, is))
  const comparable = Object.entries(was.values ?? {}).filter(([name]) => !unknown.includes(name))
  return {
    before: before && Object.fromEntries(comparable),
    after: is.values,
    withheld: [...new Set([...gone, ...unknown, ...changed])],
  }
}

/** A value without what is taken for a secret in it: in free objects. */
export const withoutFreeSecrets = ({ fields }: Kind, name: string, value: unknown) =>
  fields.find((field) => field.name === name)?.isFree ? separateSecrets(value) : { rest: value, secrets: [] }

/** What may be kept of some fields, and the secrets in objects of which the rest is kept. */
function keptOf(kind: Kind, values: Values | null) {
  const kept: Values = {}
  const secrets: Record<string, unknown> = {}
  const secret = secretFields(kind, values ?? {})
  for (const [name, value] of Object.entries(values ?? {})) {
    if (secret.includes(name)) continue
    const stripped = withoutFreeSecrets(kind, name, value)
    if (stripped.secrets.length === 0) kept[name] = value
    // What is left of an object can be merged again, where that is how it is changed; what is left of a list cannot.
    else if (kind.merged.includes(name) && !hasListWithSecrets(value)) {
      kept[name] = stripped.rest
      secrets[name] = stripped.secrets
    }
  }
  return { values: values && kept, secrets }
}

/** A merge patch replaces a list as a whole (RFC 7396), and with it the secrets that are not kept. */
function hasListWithSecrets(value: unknown): boolean {
  if (Array.isArray(value)) return separateSecrets(value).secrets.length > 0
  return isJsonObject(value) && Object.values(value).some(hasListWithSecrets)
}

export const sectionsOfChanges = (applied: readonly AppliedChange[]): Section[] =>
  sections.filter((section) => applied.some((one) => one.section === section))

/** What one apply did to each object in all: it may make or take over an object and change it in several steps. */
export function mergedByObject(applied: readonly AppliedChange[]): AppliedChange[] {
  const all = Map.groupBy(applied, ({ id }) => id)
  return [...all.values()].map((steps) => steps.reduce(followedBy))
}

const followedBy = (one: AppliedChange, next: AppliedChange): AppliedChange => ({
  section: one.section,
  id: one.id,
  orgId: one.orgId,
  action: next.action === 'release' ? next.action : one.action,
  key: next.key,
  nameInFiles: one.nameInFiles,
  before: one.action === 'create' ? null : { ...next.before, ...one.before },
  after: { ...one.after, ...next.after },
  ids: {
    before: { ...next.ids.before, ...one.ids.before },
    after: { ...one.ids.after, ...next.ids.after },
  },
  withheld: one.action === 'create' ? [] : [...one.withheld, ...next.withheld],
  ...(next.notMadeAgain !== undefined && { notMadeAgain: next.notMadeAgain }),
  ...(one.formerId !== undefined && { formerId: one.formerId }),
  ...((one.ends ?? next.ends) && { ends: addCounts([one.ends, next.ends])! }),
})
