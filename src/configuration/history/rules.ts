import { Problem } from '../../core/errors.ts'
import { withoutSecrets } from '../../tenancy/rules.ts'
import { type Kind, kinds, type Section, sections } from '../contract.ts'
import type { Owners } from '../owners.ts'
import { canonical, isElsewhere, isObject, type Stored, type Values } from '../rules.ts'
import type { State } from '../state.ts'
import type { Lost } from './contract.ts'
import type { Done } from './done.ts'

/** What a rollback does: objects to be as they were, and objects that an apply made or took over. */
export type Back = {
  document: Record<string, Values[]>
  deletions: ReadonlySet<string>
  releases: ReadonlySet<string>
  lost: readonly Lost[]
}

export const sectionsOfChanges = (done: readonly Done[]): Section[] =>
  sections.filter((section) => done.some((one) => one.section === section))

/** What one apply did to each object in all: it may make or take over an object and change it in several steps. */
function together(done: readonly Done[]): Done[] {
  const all = Map.groupBy(done, ({ id }) => id)
  return [...all.values()].map((steps) => steps.reduce(followedBy))
}

const followedBy = (one: Done, next: Done): Done => ({
  section: one.section,
  id: one.id,
  orgId: one.orgId,
  action: next.action === 'release' ? next.action : one.action,
  key: next.key,
  before: one.action === 'create' ? null : { ...next.before, ...one.before },
  after: { ...one.after, ...next.after },
  ids: {
    before: { ...next.ids.before, ...one.ids.before },
    after: { ...one.ids.after, ...next.ids.after },
  },
  untold: one.action === 'create' ? [] : [...one.untold, ...next.untold],
})

/** The merge patch (RFC 7396) that makes `from` into `to`. */
function patchBetween(from: Values, to: Values): Values {
  const patch: Values = {}
  for (const key of new Set([...Object.keys(from), ...Object.keys(to)])) {
    const [was, is] = [from[key], to[key]]
    if (canonical(was) === canonical(is)) continue
    if (!Object.hasOwn(to, key)) patch[key] = null
    else patch[key] = isObject(was) && isObject(is) ? patchBetween(was, is) : is
  }
  return patch
}

/**
 * An apply backwards, in the names of today, and what stands in its way: whatever is no longer as the apply left it. Objects
 * of organizations that the caller does not see are counted and not named.
 */
export function backwards(
  done: readonly Done[],
  { prune, state, owners }: { prune: boolean; state: State; owners: Owners },
): { back: Back; moved: string[]; unseen: number } {
  const document: Record<string, Values[]> = {}
  const [deletions, releases] = [new Set<string>(), new Set<string>()]
  const moved: string[] = []
  const lost: Lost[] = []
  let unseen = 0
  const all = together(done)
  const nameOf = namesAfter(all, state)
  // Backwards: a name that was taken over is free again before who had it gets it back.
  for (const one of all.toReversed()) {
    const { section, id, key, action } = one
    const orgId = ownerOf(one)
    const org = orgId === null ? null : nameOf('organizations', orgId)
    if (org === undefined) {
      unseen += 1
      continue
    }
    document[section] ??= []
    const objects = document[section]
    const name = `${section} "${key}"${org === null ? '' : ` of ${org}`}`
    const lose = (reason: string) => lost.push({ section, org, name: key, reason })
    const now = state.get(section, id)
    if (action === 'delete' || action === 'end') {
      const isThere = orgId === null || state.get('organizations', orgId) !== undefined
      if (isThere && state.named(section, orgId, key).length > 0) moved.push(`${name} is there again`)
      else if (isBroken(one)) lose(`is not made again, as its ${one.untold.join(', ')} is kept nowhere`)
      else {
        objects.push({ ...(org !== null && { org }), ...named(one, nameOf) })
        if (one.untold.length > 0) lose(`is made again without the secrets in its ${one.untold.join(', ')}`)
        if (section === 'memberships') lose('is invited again, and has to accept')
      }
      continue
    }
    if (action === 'create' && !prune) {
      if (now && owners.isOwn(now)) deletions.add(id)
      continue
    }
    if (!now) {
      moved.push(`${name} is deleted, or not visible to you`)
      continue
    }
    if (action === 'release' && owners.of(now)) {
      moved.push(`${name} belongs to a set again`)
      continue
    }
    if (action !== 'release' && !owners.isOwn(now)) {
      moved.push(`${name} does not belong to the set any more`)
      continue
    }
    const present = state.file(kinds[section], now)
    const fields = changedSince(one, now, present)
    if (fields.length > 0) {
      moved.push(`${name}: ${fields.join(', ')} changed since${timeOf(now)}`)
      continue
    }
    if (action === 'create') {
      deletions.add(id)
      continue
    }
    if (action === 'adopt') releases.add(id)
    if (one.untold.length > 0)
      lose(`keeps what the apply set, as nobody is told what was before: ${one.untold.join(', ')}`)
    const isChanged = one.before !== null && Object.keys(one.before).length > 0
    if (action === 'release' || isChanged)
      objects.push(asBefore({ ...one, before: named(one, nameOf) }, now, present, org))
  }
  // What is not deleted may stand on what it likes.
  if (prune) moved.push(...standing(all, state, deletions))
  const ordered = sections.flatMap((section) => lost.filter((one) => one.section === section))
  return { back: { document, deletions, releases, lost: ordered }, moved, unseen }
}

/** Organizations are of the partner. */
const ownerOf = ({ section, orgId }: Pick<Done, 'section' | 'orgId'>): string | null =>
  section === 'organizations' ? null : orgId

/** Whether what is not kept leaves an object that would be something else than it was. */
const isBroken = ({ section, before, untold }: Done): boolean =>
  untold.some((name) => !Object.hasOwn(before ?? {}, name) || !kinds[section].merged.includes(name))

/** Fields that are not as the apply left them. */
function changedSince({ section, after, ids }: Done, now: Stored, present: Values): string[] {
  const is = (field: string) => withoutSecrets(present[field]).rest
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

const timeOf = ({ record }: Stored): string =>
  typeof record.updatedAt === 'string' ? ` (${record.updatedAt})` : ''

type NameOf = (section: Section, id: string) => string | undefined

/** What objects are called once the rollback is done: as before the apply where it renamed or deleted them, and as today otherwise. */
function namesAfter(all: readonly Done[], state: State): NameOf {
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
const named = ({ section, before, ids }: Done, nameOf: NameOf): Values =>
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

const fieldOf = (section: Section, { record }: Stored, name: string): unknown =>
  record[kinds[section].fields.find((field) => field.name === name)!.field]

/** The object with the values that it had, in the form in which a file would ask for them. */
function asBefore({ section, before }: Done, now: Stored, present: Values, org: string | null): Values {
  const kind: Kind = kinds[section]
  const wanted = Object.fromEntries(
    Object.entries(before ?? {}).map(([field, value]) => {
      const is = withoutSecrets(present[field]).rest
      const isMerged = kind.merged.includes(field) && isObject(value) && isObject(is)
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

/** What has come to stand on objects that the rollback deletes: in them, or with a reference to them that it does not take back. */
function standing(all: readonly Done[], state: State, deletions: ReadonlySet<string>): string[] {
  if (deletions.size === 0) return []
  const restored = new Set(
    all.flatMap(({ id, before }) => Object.keys(before ?? {}).map((name) => `${id} ${name}`)),
  )
  return sections
    .filter((section) => state.has(section))
    .flatMap((section) => {
      const references = kinds[section].fields.filter(({ refersTo }) => refersTo !== undefined)
      return state
        .all(section)
        .filter(({ id }) => !deletions.has(id))
        .flatMap((one) => {
          const at = ownerOf(one)
          const isIn = at !== null && deletions.has(at)
          const refers = references.some(
            ({ name, field }) =>
              [one.record[field]].flat().some((id) => deletions.has(String(id))) &&
              !restored.has(`${one.id} ${name}`),
          )
          if (!isIn && !refers) return []
          const org = state.org(one)
          return [
            `${section} "${one.key}"${org === null ? '' : ` of ${org}`} stands on what it made${timeOf(one)}`,
          ]
        })
    })
}

const mostNamed = 10

/** @throws conflict with what stands in the way of a rollback, if anything does */
export function checkNothingMoved(moved: readonly string[], unseen: number): void {
  const hidden =
    unseen === 0
      ? []
      : [`${unseen} of its changes are of organizations that are deleted or that you do not see`]
  const all = [...hidden, ...moved]
  if (all.length === 0) return
  const more = all.length > mostNamed ? [`and ${all.length - mostNamed} more`] : []
  throw new Problem(
    'conflict',
    `This apply cannot be rolled back, as later changes stand on it: ${[...all.slice(0, mostNamed), ...more].join('; ')}`,
  )
}

/** What ends with what a rollback deletes has come after the apply; but for memberships that the apply made. */
export function usesOf(ends: readonly Record<string, number>[], members: number): string[] {
  const counts = new Map<string, number>([['members', -members]])
  for (const [what, count] of ends.flatMap((one) => Object.entries(one)))
    counts.set(what, (counts.get(what) ?? 0) + count)
  return [...counts]
    .filter(([, count]) => count > 0)
    .map(([what, count]) => `${count} ${what} would end with it`)
}
