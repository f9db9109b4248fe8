import { hasEnded } from '../tenancy/rules.ts'
import type { Kind, Section } from './contract.ts'
import { type DesiredObjectInOrg, matchObjects, type ObjectMatch, placeOf } from './matching.ts'
import type { Owners } from './owners.ts'
import type { PlanContext } from './plan-context.ts'
import type { PlanResults } from './plan-results.ts'
import { type DesiredObject, isExpired, namespaceOf, type References, type StoredObject } from './rules.ts'
import type { State } from './state.ts'

/** A reference to something that could not be made: what names it is not at fault. */
const dependencyFailed = Symbol('dependencyFailed')
/** A reference to nothing; its fault is noted. */
const notFound = Symbol('notFound')

const isFound = (found: string | symbol | (string | symbol)[]): found is string | string[] =>
  [found].flat().every((one) => typeof one === 'string')

/** What the names of a file mean. */
export class Naming {
  readonly #context: PlanContext
  readonly #state: State
  readonly #owners: Owners
  readonly #found: PlanResults
  readonly #isLeaving: (stored: StoredObject) => boolean
  /** What the files call each object that they mean, by its id; and the ids of those that have another name, by that. */
  readonly #names = new Map<string, string>()
  readonly #renamed = new Map<string, string>()
  /** New ids of what a rollback has made again, by the former ones. */
  readonly #restored = new Map<string, string>()

  /** `isLeaving`: whether the same apply deletes an object. */
  constructor(
    context: PlanContext,
    about: { state: State; owners: Owners; found: PlanResults; isLeaving(stored: StoredObject): boolean },
  ) {
    this.#context = context
    this.#state = about.state
    this.#owners = about.owners
    this.#found = about.found
    this.#isLeaving = about.isLeaving
  }

  /** The files mean this object by that name, whatever it is called until it is changed. */
  note({ section, key }: DesiredObject, orgId: string | null, stored: StoredObject): void {
    this.#names.set(stored.id, key)
    if (stored.key !== key) this.#renamed.set(`${section} ${placeOf(orgId, key)}`, stored.id)
  }

  /** Id of what the files mean by a name; undefined: none of them has it. */
  #meant(section: Section, orgId: string | null, name: string): string | undefined {
    const renamed = this.#renamed.get(`${section} ${placeOf(orgId, name)}`)
    if (renamed !== undefined) return renamed
    return this.#state.named(section, orgId, name).find(({ id }) => this.#names.get(id) === name)?.id
  }

  /** Whether the files call something else as they called an object that somebody has renamed. */
  isReplaced(stored: StoredObject): boolean {
    const { section, id, key } = stored
    const name = this.#owners.nameInFiles(stored)
    if (name === null || name === key) return false
    const meant = this.#meant(section, namespaceOf(stored), name)
    return meant !== undefined && meant !== id
  }

  restore(formerId: string, id: string): void {
    this.#restored.set(formerId, id)
  }

  /** null: it belongs to the partner. */
  organization(kind: Kind, { org, path, identity }: DesiredObject): string | null | symbol {
    const { orgId } = this.#context.owner
    if (kind.owner === 'partner') return null
    if (identity)
      return identity.orgId === null ? null : this.#identical(`${path}.org`, 'organizations', identity.orgId)
    if (org === undefined) {
      if (orgId !== null || kind.owner === 'either') return orgId
      this.#found.fault(`${path}.org`, 'is required')
      return notFound
    }
    const named = this.#state.named('organizations', null, org)
    // One that is deleted, or changes its name later, may not have given it up yet to another.
    const found = named.findLast((one) => !this.#isLeaving(one)) ?? named.at(-1)
    if (found) return this.#staying(`${path}.org`, found)
    if (this.#found.hasFailed('organizations', undefined, org)) return dependencyFailed
    this.#found.fault(`${path}.org`, `there is no organization "${org}" that you can see`)
    return notFound
  }

  /** The stored object that each object of the files means, in one section; those at fault are left out. */
  async match(
    { section, whyNotCreated, wholePartner }: Kind,
    placed: readonly DesiredObjectInOrg[],
    on: { prune: boolean; yieldIfDue(): Promise<void> },
  ): Promise<ReadonlyMap<DesiredObject, ObjectMatch>> {
    const renamed = new Map<string, StoredObject[]>()
    for (const stored of this.#state.all(section)) {
      await on.yieldIfDue()
      const name = this.#owners.nameInFiles(stored)
      if (name === null || name === stored.key) continue
      const place = placeOf(namespaceOf(stored), name)
      renamed.set(place, [...(renamed.get(place) ?? []), stored])
    }
    const { matches, faults } = await matchObjects(
      placed.filter(({ item }) => !item.identity),
      {
        ...on,
        named: (orgId, name) => this.#owners.ownOf(this.#state.named(section, orgId, name)),
        calledInFiles: (orgId, name) => [
          ...this.#state.named(section, orgId, name).filter((one) => this.#owners.nameInFiles(one) === name),
          ...(renamed.get(placeOf(orgId, name)) ?? []),
        ],
        nameInFiles: (stored) => this.#owners.nameInFiles(stored),
        formerNameOf: (stored) => this.#owners.formerNameOf(stored),
        isOwn: (stored) => this.#owners.isOwn(stored),
      },
    )
    this.#found.addFaults([...faults.values()])
    // What files do not make has to be there; what they let expire is let be once it has, and what ended with its organization.
    for (const [item, { stored }] of whyNotCreated === undefined ? [] : matches) {
      if (stored) continue
      matches.delete(item)
      if (isExpired(item.values, this.#context.on.now) || this.#isInEndedOrg(section, item)) continue
      const [partner] = wholePartner ? this.#state.all(section) : []
      const why = partner
        ? `is not the partner of these files, which is "${partner.key}"`
        : `is not there, or has ended, and files make none: ${whyNotCreated}`
      this.#found.fault(item.path, why)
    }
    for (const { item, orgId } of placed) {
      const stored = matches.get(item)?.stored
      if (stored) this.note(item, orgId, stored)
    }
    return matches
  }

  /** Whether access to the organization of an object has ended, and with it its keys for good. */
  #isInEndedOrg(section: Section, { org }: DesiredObject): boolean {
    if (section === 'organizations' || org === undefined) return false
    const [found] = this.#state.named('organizations', null, org)
    return found !== undefined && hasEnded(String(found.record.status), null)
  }

  /** The same of a rollback: each is itself, whatever has its name today. `leaving`: ids of what gives up its name. */
  identities(
    section: Section,
    placed: readonly DesiredObjectInOrg[],
    leaving: ReadonlySet<string>,
  ): Map<DesiredObject, ObjectMatch> {
    const matches = new Map<DesiredObject, ObjectMatch>()
    for (const { item, orgId } of placed) {
      const { key, path, identity } = item
      const stored = this.#state.get(section, identity!.id)
      const isNamed = identity!.isDeleted || stored?.key !== key
      const others = isNamed ? this.#state.named(section, orgId, key) : []
      if (others.some(({ id }) => !leaving.has(id)))
        this.#found.fault(path, `there is another "${key}" among the ${section}: delete or rename it first`)
      else matches.set(item, { stored, inTheWay: others[0] })
    }
    return matches
  }

  /** Ids of what the item names; undefined where something is missing. */
  references(kind: Kind, item: DesiredObject, orgId: string | null): References | undefined {
    const ids = new Map<string, string | string[]>()
    let isWhole = true
    for (const { name, refersTo } of kind.fields) {
      const value = item.values[name]
      if (refersTo === undefined || value === undefined || value === null) continue
      const path = `${item.path}.${name}`
      const same = item.identity?.references[name]
      const idOf = (at: string, one: unknown) =>
        same === undefined
          ? this.#reference(at, refersTo, orgId, String(one))
          : this.#identical(at, refersTo, String(one))
      const wanted = same ?? value
      const found = Array.isArray(wanted)
        ? wanted.map((one, at) => idOf(`${path}.${at}`, one))
        : idOf(path, wanted)
      if (isFound(found)) ids.set(name, found)
      else isWhole = false
    }
    return isWhole ? ids : undefined
  }

  /** What had this id before a rollback: itself, or what was made again in its place. */
  #identical(path: string, section: Section, id: string): string | symbol {
    if (!this.#state.has(section)) {
      this.#found.fault(path, `names one of ${section}, which you may not read`)
      return notFound
    }
    const found = this.#state.get(section, this.#restored.get(id) ?? id)
    if (found) return found.id
    if (this.#found.hasIdFailed(id)) return dependencyFailed
    this.#found.fault(path, `names one of ${section} that is not there any more`)
    return notFound
  }

  /** Id of what the files name, and keep: deleted by the same apply, it would take with it what is made in it or refers to it. */
  #staying(path: string, found: StoredObject): string | symbol {
    const { section, key } = found
    const isAtFault = this.#found.hasFailed(section, this.#slugOf(section, found.orgId), key)
    if (isAtFault || !this.#isLeaving(found)) return found.id
    const message = `names "${key}", which --prune deletes: keep it among the ${section}, or leave this out`
    this.#found.fault(path, message)
    return notFound
  }

  #slugOf(section: Section, orgId: string | null): string | undefined {
    if (section === 'organizations' || orgId === null) return undefined
    return this.#state.get('organizations', orgId)?.key
  }

  #reference(path: string, section: Section, orgId: string | null, name: string): string | symbol {
    if (!this.#state.has(section)) {
      this.#found.fault(path, `names one of ${section}, which you may not read`)
      return notFound
    }
    const meant = this.#meant(section, orgId, name)
    if (meant !== undefined) return meant
    // What the files call something else has this name by hand, and gives it up.
    const isOther = ({ id }: StoredObject): boolean => (this.#names.get(id) ?? name) !== name
    const referred = (isOut: typeof isOther) =>
      this.#owners.ownOf(this.#state.referred(section, orgId, name, isOut))
    // A role that is deleted leaves its name to a built-in one.
    const staying = referred((one) => isOther(one) || this.#isLeaving(one))
    const found = staying.length > 0 ? staying : referred(isOther)
    if (found.length === 1) return this.#staying(path, found[0]!)
    if (found.length === 0 && this.#found.hasFailed(section, this.#slugOf(section, orgId), name))
      return dependencyFailed
    const among = `"${name}" among the ${section} of its organization`
    const fault =
      section === 'organizations'
        ? `there is no organization "${name}" that you can see`
        : found.length === 0
          ? `there is no ${among}`
          : `there are ${found.length} named ${among}: rename all but one`
    this.#found.fault(path, fault)
    return notFound
  }
}
