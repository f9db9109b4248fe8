import type { Fault } from '../core/errors.ts'
import type { Item, Stored } from './rules.ts'

/** An object of the files in its organization; null: of the partner. */
export type Placed = { item: Item; orgId: string | null }

/** Which object that there is one of the files means. */
export type Claim = {
  /** undefined: it is new. */
  stored: Stored | undefined
  /** Another object that has its name, until that is renamed or deleted as well. */
  inTheWay: Stored | undefined
}

type Wish = Placed & {
  /** The object of its name, and that of its former one: what has it, or had it until somebody renamed it by hand. */
  present: Stored | undefined
  former: Stored | undefined
  /** An earlier apply renamed the object of its name from the former one. */
  isDone: boolean
}

/** Where a name means one object of a section: no id has a space. */
export const placeOf = (orgId: string | null, name: string): string => `${orgId ?? ''} ${name}`

/**
 * What the objects of one section mean, decided for all of them before anything changes: names may be exchanged, and passed
 * on from one to the next. An object is the one of its former name, unless its files renamed that before, or another object
 * of the files goes on to have that name.
 */
export async function claimsOf(
  all: readonly Placed[],
  on: {
    /** Objects that a name may mean. */
    named(orgId: string | null, name: string): Stored[]
    /** Objects of the set that its files called so when they were applied last, and somebody has renamed since. */
    calledInFiles(orgId: string | null, name: string): readonly Stored[]
    /** What the set called an object of its own before. */
    formerNameOf(stored: Stored): string | null
    isOwn(stored: Stored): boolean
    /** Whether the set deletes what no file has. */
    prune: boolean
    /** Called between the objects, of which there may be many. */
    breathe(): Promise<void>
  },
): Promise<{ claims: Map<Item, Claim>; faults: Map<Item, Fault> }> {
  const claims = new Map<Item, Claim>()
  const faults = new Map<Item, Fault>()
  const fault = ({ item }: Placed, field: string, message: string) =>
    faults.set(item, { path: `${item.path}${field}`, message })
  const wishes: Wish[] = []
  const isRenamedFrom = (stored: Stored | undefined, renamedFrom: string | undefined): boolean =>
    stored !== undefined && renamedFrom !== undefined && on.formerNameOf(stored) === renamedFrom
  const said = new Set<string>()
  for (const { item, orgId } of all) {
    const { key, renamedFrom } = item
    said.add(placeOf(orgId, key))
    const isDone = isRenamedFrom(on.named(orgId, key)[0], renamedFrom)
    if (renamedFrom !== undefined && !isDone) said.add(placeOf(orgId, renamedFrom))
    await on.breathe()
  }
  const meantBy = (orgId: string | null, name: string): Stored[] => {
    const found = on.named(orgId, name)
    if (found.length > 0) return found
    const renamed = on.calledInFiles(orgId, name).filter(({ key }) => !said.has(placeOf(orgId, key)))
    return renamed.length === 1 ? renamed : []
  }
  for (const placed of all) {
    const { section, key, renamedFrom } = placed.item
    const [present, ...more] = meantBy(placed.orgId, key)
    const isDone = isRenamedFrom(present, renamedFrom)
    const isOther = renamedFrom !== undefined && renamedFrom !== key
    const [former, ...others] = isOther ? meantBy(placed.orgId, renamedFrom) : []
    const count = 1 + Math.max(more.length, others.length)
    if (more.length > 0)
      fault(placed, '', `there are ${count} of ${section} named "${key}": rename all but one first`)
    else if (others.length > 0 && !isDone)
      fault(placed, '.renamedFrom', `there are ${count} of ${section} named "${renamedFrom}"`)
    else wishes.push({ ...placed, present, former: others.length > 0 ? undefined : former, isDone })
    await on.breathe()
  }
  const takers = new Map<string, Wish>()
  for (const wish of await pendingOf(wishes, on)) {
    const { renamedFrom } = wish.item
    const other = takers.get(wish.former!.id)
    if (other) fault(wish, '.renamedFrom', `"${other.item.key}" is renamed from "${renamedFrom}" as well`)
    else takers.set(wish.former!.id, wish)
  }
  for (const wish of wishes) {
    const { item, present, former } = wish
    if (faults.has(item)) continue
    const isRenamed = former !== undefined && takers.get(former.id) === wish
    const stored = isRenamed ? former : present
    const inTheWay = present === stored ? undefined : present
    await on.breathe()
    if (!inTheWay || takers.has(inTheWay.id)) {
      claims.set(item, { stored, inTheWay })
      continue
    }
    // Nobody deletes what the set does not own, nor gives its name to what the set has never had.
    const isDeletable = on.isOwn(inTheWay) && on.isOwn(former!)
    if (isDeletable && on.prune) claims.set(item, { stored, inTheWay })
    else {
      const both = `both "${item.renamedFrom}" and "${item.key}" exist: delete or rename one first`
      fault(wish, '.renamedFrom', isDeletable ? `${both}, or delete "${item.key}" with --prune` : both)
    }
  }
  return { claims, faults }
}

/**
 * Those that are renamed: nothing in the files goes on to have the former name, or what does is renamed itself. A circle is
 * renamed as a whole, unless the files have renamed each of it before, or the set does not own all of it any more.
 */
async function pendingOf(
  wishes: readonly Wish[],
  on: { isOwn(stored: Stored): boolean; breathe(): Promise<void> },
): Promise<Wish[]> {
  const byPlace = new Map(wishes.map((wish) => [placeOf(wish.orgId, wish.item.key), wish]))
  const known = new Map<Wish, boolean>()
  for (const start of wishes) {
    const chain = new Set<Wish>()
    let next: Wish | undefined = start
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
    await on.breathe()
  }
  return wishes.filter((wish) => known.get(wish))
}
