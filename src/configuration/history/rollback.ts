import { isJsonObject } from '../../core/json.ts'
import { type Kind, kinds, type Section, sections } from '../contract.ts'
import { addCounts, type Counts, onlyEnding } from '../endings.ts'
import type { Owners } from '../owners.ts'
import {
  canonical,
  type Identity,
  isElsewhere,
  namespaceOf,
  type StoredObject,
  type Values,
} from '../rules.ts'
import type { State } from '../state.ts'
import { type AppliedChange, mergedByObject, withoutFreeSecrets } from './applied-changes.ts'
import { endedAs, laterDependents, timeOf } from './conflicts.ts'
import type { Lost } from './contract.ts'

/** What a rollback does: objects to be as they were, and objects that an apply made or took over. */
export type Rollback = {
  document: Record<string, Values[]>
  /** Of each object of the document. */
  identities: ReadonlyMap<Values, Identity>
  deletions: ReadonlySet<string>
  releases: ReadonlySet<string>
  lost: readonly Lost[]
}

/**
 * A rollback, in the names of today, and its conflicts: whatever is no longer as the apply left it. Objects of
 * organizations that the caller does not see are counted and not named.
 */
export function rollbackOf(
  applied: readonly AppliedChange[],
  {
    prune,
    state,
    owners,
    seesEnded,
  }: { prune: boolean; state: State; owners: Owners; seesEnded(section: Section): boolean },
): { rollback: Rollback; conflicts: string[]; unseen: number } {
  const document: Record<string, Values[]> = {}
  const identities = new Map<Values, Identity>()
  const [deletions, releases] = [new Set<string>(), new Set<string>()]
  const conflicts: string[] = []
  const lost: Lost[] = []
  let unseen = 0
  const all = mergedByObject(applied)
  const nameOf = namesAfter(all, state)
  const leaving = leavingTheirNames(all, prune)
  const restored = new Set(all.filter((one) => isRestored(one)).map(({ id }) => id))
  // Backwards: a name that was taken over is free again before who had it gets it back.
  for (const one of all.toReversed()) {
    const { section, id, key, action } = one
    const orgId = namespaceOf(one)
    const org = orgId === null ? null : nameOf('organizations', orgId)
    if (org === undefined) {
      unseen += 1
      continue
    }
    document[section] ??= []
    const objects = document[section]
    const name = `${section} "${key}"${org === null ? '' : ` of ${org}`}`
    const lose = (reason: string) => lost.push({ section, org, name: key, reason })
    const put = (object: Values) => {
      objects.push(object)
      const { nameInFiles, ids } = one
      identities.set(object, { id, orgId, isDeleted: isDeletion(one), nameInFiles, references: ids.before })
      const missing = missingReferences(one, state, restored)
      conflicts.push(...missing.map((what) => `${name}: its ${what} is deleted, or not visible to you`))
    }
    const now = state.get(section, id)
    if (isDeletion(one)) {
      const isThere = orgId === null || state.get('organizations', orgId) !== undefined
      const others = isThere ? state.named(section, orgId, key) : []
      if (others.some((other) => !leaving.has(other.id))) conflicts.push(`${name} is there again`)
      else if (!isRestored(one)) lose(`is not made again, as ${whyLost(one)}`)
      else {
        const { valuesToRecreate }: Kind = kinds[section]
        const values = named(one, nameOf)
        put({ ...(org !== null && { org }), ...(valuesToRecreate?.(values) ?? values) })
        if (one.withheld.length > 0)
          lose(`is made again without the secrets in its ${one.withheld.join(', ')}`)
        const ended = onlyEnding(addCounts([one.ends, madeAgainIn(one, all)]))
        if (ended) lose(whatEnded(ended, seesEnded(section)))
        if (section === 'memberships') lose('is invited again, and has to accept')
      }
      continue
    }
    if (action === 'create' && !prune) {
      if (now && owners.isOwn(now)) deletions.add(id)
      continue
    }
    if (!now) {
      conflicts.push(`${name} is deleted, or not visible to you`)
      continue
    }
    if (action === 'release' && owners.of(now)) {
      conflicts.push(`${name} belongs to a set again`)
      continue
    }
    if (action !== 'release' && !owners.isOwn(now)) {
      conflicts.push(`${name} does not belong to the set any more`)
      continue
    }
    const present = state.file(kinds[section], now)
    const fields = changedSince(one, now, present)
    if (fields.length > 0) {
      conflicts.push(`${name}: ${fields.join(', ')} changed since${timeOf(now)}`)
      continue
    }
    if (action === 'create') {
      deletions.add(id)
      continue
    }
    if (action === 'adopt') releases.add(id)
    if (one.ends) lose(whatEnded(one.ends, seesEnded(section)))
    const emptied = withoutBound(one, present)
    const kept = one.withheld.filter((name) => !Object.hasOwn(emptied, name))
    if (kept.length > 0)
      lose(`keeps what the apply set, as nobody is told what was before: ${kept.join(', ')}`)
    const isChanged = one.before !== null && Object.keys(one.before).length > 0
    if (action === 'release' || isChanged) {
      for (const field of Object.keys(emptied))
        lose(`has no ${field} any more: they are secret, and it leads elsewhere`)
      put(asBefore({ ...one, before: { ...named(one, nameOf), ...emptied } }, now, present, org))
    }
  }
  // What is not deleted may have any dependents.
  if (prune) conflicts.push(...laterDependents(all, state, deletions))
  const ordered = sections.flatMap((section) => lost.filter((one) => one.section === section))
  return { rollback: { document, identities, deletions, releases, lost: ordered }, conflicts, unseen }
}

/** Ids of what the rollback renames or deletes: its name of today is free then. */
const leavingTheirNames = (all: readonly AppliedChange[], prune: boolean): ReadonlySet<string> => {
  const leaves = ({ section, action, before }: AppliedChange) =>
    action === 'create' ? prune : before !== null && Object.hasOwn(before, kinds[section].key)
  return new Set(all.filter((one) => !isDeletion(one) && leaves(one)).map(({ id }) => id))
}

const isDeletion = ({ action }: AppliedChange): boolean => action === 'delete' || action === 'end'

/** Whether an object that was deleted is made again: not if it would be something else than it was. */
const isRestored = (one: AppliedChange): boolean =>
  isDeletion(one) &&
  kinds[one.section].whyNotCreated === undefined &&
  one.notMadeAgain === undefined &&
  one.withheld.every(
    (name) => Object.hasOwn(one.before ?? {}, name) && kinds[one.section].merged.includes(name),
  )

/** The counts are those that whoever applied saw. */
const whatEnded = (ends: NonNullable<AppliedChange['ends']>, isVisible: boolean): string => {
  if (!isVisible) return 'does not get back what ended'
  const counts = Object.entries(ends).map(([kind, count]) => `${count} ${kind}`)
  return `does not get back what ended: ${counts.join(', ')}`
}

/** What ended with an organization and is made again with it, as less that is lost. */
function madeAgainIn({ section, id }: AppliedChange, all: readonly AppliedChange[]): Counts {
  const counts: Counts = {}
  if (section !== 'organizations') return counts
  for (const one of all) {
    if (one.action !== 'end' || one.orgId !== id || !isRestored(one)) continue
    const what = endedAs[one.section] ?? one.section
    counts[what] = (counts[what] ?? 0) - 1
  }
  return counts
}

const whyLost = ({ section, withheld, notMadeAgain }: AppliedChange): string =>
  kinds[section].whyNotCreated ?? notMadeAgain ?? `its ${withheld.join(', ')} is kept nowhere`

/** What the former values name that is neither there nor made again, whatever has its name today. */
function missingReferences(
  { section, before, ids }: AppliedChange,
  state: State,
  restored: ReadonlySet<string>,
): string[] {
  return kinds[section].fields.flatMap(({ name, refersTo }) => {
    const value = ids.before[name]
    // What the caller may not read is said where it is looked for.
    if (refersTo === undefined || value === undefined || !state.has(refersTo)) return []
    const isMissing = [value].flat().some((id) => !state.get(refersTo, id) && !restored.has(id))
    return isMissing ? [`${name} ${[before![name]].flat().map((one) => `"${String(one)}"`)}`] : []
  })
}

/** Fields that are not as the apply left them. */
function changedSince({ section, after, ids }: AppliedChange, now: StoredObject, present: Values): string[] {
  const is = (field: string) => withoutFreeSecrets(kinds[section], field, present[field]).rest
  const { initial = [] } = kinds[section]
  return Object.keys(after ?? {}).filter((field) => {
    // It is theirs.
    if (initial.includes(field)) return false
    const id = ids.after[field]
    return id === undefined
      ? canonical(is(field)) !== canonical(after![field])
      : isElsewhere(id, fieldOf(section, now, field))
  })
}

type NameOf = (section: Section, id: string) => string | undefined

/** What objects are called once the rollback is done: as before the apply where it renamed or deleted them, and as today otherwise. */
function namesAfter(all: readonly AppliedChange[], state: State): NameOf {
  const former = new Map(
    all.flatMap(({ section, id, action, key, before }) => {
      const name = action === 'delete' ? key : before?.[kinds[section].key]
      return typeof name === 'string' ? [[`${section} ${id}`, name] as const] : []
    }),
  )
  return (section, id) =>
    former.get(`${section} ${id}`) ?? (state.has(section) ? state.get(section, id)?.key : undefined)
}

/** The values from before, with the names that things have then. */
const named = ({ section, before, ids }: AppliedChange, nameOf: NameOf): Values =>
  Object.fromEntries(
    Object.entries(before ?? {}).map(([name, value]) => {
      const refersTo = kinds[section].fields.find((field) => field.name === name)?.refersTo
      const id = ids.before[name]
      if (refersTo === undefined || id === undefined) return [name, value]
      if (typeof id === 'string') return [name, nameOf(refersTo, id) ?? value]
      const names = id.map((one) => nameOf(refersTo, one))
      return [name, names.every((one) => one !== undefined) ? names : value]
    }),
  )

const fieldOf = (section: Section, { record }: StoredObject, name: string): unknown =>
  record[kinds[section].fields.find((field) => field.name === name)!.field]

/** Secrets that stay where they are when an object leads to another place again. */
function withoutBound({ section, before }: AppliedChange, present: Values): Values {
  const { bound }: Kind = kinds[section]
  if (!bound || before === null || Object.hasOwn(before, bound.field)) return {}
  const [is, was] = [present[bound.to], before[bound.to]]
  const isKept = canonical(present[bound.field] ?? bound.none) !== canonical(bound.none)
  const leads = typeof was === 'string' && bound.isElsewhere(was, String(is))
  return isKept && leads ? { [bound.field]: bound.none } : {}
}

/** The object with the values that it had, in the form in which a file would ask for them. */
function asBefore(
  { section, before }: AppliedChange,
  now: StoredObject,
  present: Values,
  org: string | null,
): Values {
  const kind: Kind = kinds[section]
  const wanted = Object.fromEntries(
    Object.entries(before ?? {}).map(([field, value]) => {
      const is = withoutFreeSecrets(kind, field, present[field]).rest
      const isMerged = kind.merged.includes(field) && isJsonObject(value) && isJsonObject(is)
      return [field, isMerged ? patchBetween(is, value) : value]
    }),
  )
  const key = wanted[kind.key] ?? now.key
  return {
    ...(org !== null && { org }),
    ...wanted,
    [kind.key]: key,
    ...(key !== now.key && { renamedFrom: now.key }),
  }
}

/** The merge patch (RFC 7396) that makes `from` into `to`, with all of `to`: a part may be valid as a whole alone. */
function patchBetween(from: Values, to: Values): Values {
  const gone = Object.keys(from).filter((key) => !Object.hasOwn(to, key))
  const kept = Object.entries(to).map(([key, is]) => {
    const was = from[key]
    return [key, isJsonObject(was) && isJsonObject(is) ? patchBetween(was, is) : is]
  })
  return { ...Object.fromEntries(kept), ...Object.fromEntries(gone.map((key) => [key, null])) }
}
