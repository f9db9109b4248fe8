import type { Fault } from '../core/errors.ts'
import type { DesiredObject, StoredObject } from './rules.ts'

/** An object of the files in its organization; null: of the partner. */
export type DesiredObjectInOrg = { item: DesiredObject; orgId: string | null }

/** Which object that there is one of the files means. */
export type ObjectMatch = {
  /** undefined: it is new. */
  stored: StoredObject | undefined
  /** Another object that has its name, until that is renamed or deleted as well. */
  inTheWay: StoredObject | undefined
}

type MatchCandidate = DesiredObjectInOrg & {
  /** What the files called so before, or else has the name; and the same of its former name. */
  present: StoredObject | undefined
  former: StoredObject | undefined
  /** An earlier apply renamed the object of its name from the former one. */
  isDone: boolean
}

/** Where a name means one object of a section: no id has a space. */
export const placeOf = (orgId: string | null, name: string): string => `${orgId ?? ''} ${name}`

/** What is known of the objects that there are. */
type ExistingObjects = {
  /** Objects that have a name now. */
  named(orgId: string | null, name: string): StoredObject[]
  /** Objects of the set that its files called so last, whatever somebody has called them since. */
  calledInFiles(orgId: string | null, name: string): readonly StoredObject[]
  /** What the files of the set called an object last; null: the set does not own it. */
  nameInFiles(stored: StoredObject): string | null
  /** What the set called an object of its own before. */
  formerNameOf(stored: StoredObject): string | null
  isOwn(stored: StoredObject): boolean
  /** Whether the set deletes what no file has. */
  prune: boolean
  /** Called between the objects, of which there may be many. */
  yieldIfDue(): Promise<void>
}

/**
 * What the objects of one section mean, decided for all of them before anything changes: names may be exchanged, and passed
 * on from one to the next. An object is what the files called so last, also where somebody has renamed it since; or else what
 * has the name now. With a former name it is the one of that, unless its files renamed it before, or another object
 * of the files goes on to have that name.
 */
export async function matchObjects(
  all: readonly DesiredObjectInOrg[],
  on: ExistingObjects,
): Promise<{ matches: Map<DesiredObject, ObjectMatch>; faults: Map<DesiredObject, Fault> }> {
  const faults = new Map<DesiredObject, Fault>()
  const fault = ({ item }: DesiredObjectInOrg, field: string, message: string) =>
    faults.set(item, { path: `${item.path}${field}`, message })
  const isRenamedFrom = ({ orgId, item: { key, renamedFrom } }: DesiredObjectInOrg): boolean =>
    renamedFrom !== undefined &&
    on.calledInFiles(orgId, key).some((stored) => on.formerNameOf(stored) === renamedFrom)
  const said = new Set<string>()
  for (const placed of all) {
    const { key, renamedFrom } = placed.item
    said.add(placeOf(placed.orgId, key))
    if (renamedFrom !== undefined && !isRenamedFrom(placed)) said.add(placeOf(placed.orgId, renamedFrom))
    await on.yieldIfDue()
  }
  const meantBy = (orgId: string | null, name: string): readonly StoredObject[] => {
    const called = on.calledInFiles(orgId, name)
    const [one, ...more] = called.filter(({ key }) => key === name)
    if (called.length > 0) return one && more.length === 0 ? [one] : called
    // What the files mean by another name is not meant by this one, which somebody has given it.
    const isFree = (stored: StoredObject) => {
      const other = on.nameInFiles(stored)
      return other === null || other === name || !said.has(placeOf(orgId, other))
    }
    return on.named(orgId, name).filter(isFree)
  }
  const wishes: MatchCandidate[] = []
  for (const placed of all) {
    const { section, key, renamedFrom } = placed.item
    const [present, ...more] = meantBy(placed.orgId, key)
    const isDone = isRenamedFrom(placed)
    const isOther = renamedFrom !== undefined && renamedFrom !== key
    const [former, ...others] = isOther ? meantBy(placed.orgId, renamedFrom) : []
    const count = 1 + Math.max(more.length, others.length)
    if (more.length > 0)
      fault(
        placed,
        '',
        present!.key === key
          ? `there are ${count} of ${section} named "${key}": rename all but one first`
          : `there are ${count} of ${section} that the files called "${key}": rename one of them back first`,
      )
    else if (others.length > 0 && !isDone)
      fault(placed, '.renamedFrom', `there are ${count} of ${section} named "${renamedFrom}"`)
    else wishes.push({ ...placed, present, former: others.length > 0 ? undefined : former, isDone })
    await on.yieldIfDue()
  }
  const takers = new Map<string, MatchCandidate>()
  for (const wish of await pendingOf(wishes, on)) {
    const { renamedFrom } = wish.item
    const other = takers.get(wish.former!.id)
    if (other) fault(wish, '.renamedFrom', `"${other.item.key}" is renamed from "${renamedFrom}" as well`)
    else takers.set(wish.former!.id, wish)
  }
  const storedOf = (wish: MatchCandidate): StoredObject | undefined =>
    wish.former !== undefined && takers.get(wish.former.id) === wish ? wish.former : wish.present
  const names = new Map<string, string>()
  for (const wish of wishes) {
    const stored = storedOf(wish)
    if (stored && !faults.has(wish.item)) names.set(stored.id, wish.item.key)
    await on.yieldIfDue()
  }
  const matches = new Map<DesiredObject, ObjectMatch>()
  for (const wish of wishes) {
    const { item, orgId, present } = wish
    if (faults.has(item)) continue
    const stored = storedOf(wish)
    const holders =
      stored === present && stored?.key === item.key
        ? []
        : on.named(orgId, item.key).filter(({ id }) => id !== stored?.id)
    const staying = holders.filter(({ id, key }) => (names.get(id) ?? key) === key)
    const why = whyInTheWay(wish, stored, staying, on)
    if (why === undefined) matches.set(item, { stored, inTheWay: staying[0] ?? holders[0] })
    else fault(wish, why.field, why.message)
    await on.yieldIfDue()
  }
  return { matches, faults }
}

/** Why an object cannot have its name: others have it, and nothing in the files gives them another. */
function whyInTheWay(
  { item, former }: MatchCandidate,
  stored: StoredObject | undefined,
  staying: readonly StoredObject[],
  on: ExistingObjects,
): { field: string; message: string } | undefined {
  if (staying.length === 0) return undefined
  // Nobody deletes what the set does not own, nor gives its name to what the set has never had.
  const isDeletable = [...staying, ...(stored ? [stored] : [])].every((one) => on.isOwn(one))
  if (isDeletable && on.prune) return undefined
  const hint = isDeletable ? `, or delete "${item.key}" with --prune` : ''
  if (stored !== undefined && stored === former)
    return {
      field: '.renamedFrom',
      message: `both "${item.renamedFrom}" and "${item.key}" exist: delete or rename one first${hint}`,
    }
  const renamed = stored ? `it is called "${stored.key}" now, and ` : ''
  return {
    field: '',
    message: `${renamed}another of ${item.section} has the name "${item.key}": delete or rename one first${hint}`,
  }
}

/**
 * Those that are renamed: nothing in the files goes on to have the former name, or what does is renamed itself. A circle is
 * renamed as a whole, unless the files have renamed each of it before, or the set does not own all of it any more.
 */
async function pendingOf(
  wishes: readonly MatchCandidate[],
  on: { isOwn(stored: StoredObject): boolean; yieldIfDue(): Promise<void> },
): Promise<MatchCandidate[]> {
  const byPlace = new Map(wishes.map((wish) => [placeOf(wish.orgId, wish.item.key), wish]))
  const known = new Map<MatchCandidate, boolean>()
  for (const start of wishes) {
    const chain = new Set<MatchCandidate>()
    let next: MatchCandidate | undefined = start
    while (next?.former && !known.has(next) && !chain.has(next)) {
      chain.add(next)
      next = byPlace.get(placeOf(next.orgId, next.item.renamedFrom!))
    }
    const way = [...chain]
    let isPending = next === undefined || known.get(next) === true
    if (next && chain.has(next)) {
      const circle = way.splice(way.indexOf(next))
      const done = circle.filter(({ isDone }) => isDone).length
      isPending = done === 0 || (done < circle.length && circle.every(({ former }) => on.isOwn(former!)))
      for (const one of circle) known.set(one, isPending)
    }
    for (const one of way.reverse()) {
      isPending &&= !one.isDone
      known.set(one, isPending)
    }
    await on.yieldIfDue()
  }
  return wishes.filter((wish) => known.get(wish))
}
