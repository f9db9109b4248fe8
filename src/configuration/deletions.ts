import { refusalOf } from './access.ts'
import type { Adoption } from './adoption.ts'
import { type Kind, kinds, type Section, sections } from './contract.ts'
import type { Owners } from './owners.ts'
import type { PlanContext } from './plan-context.ts'
import type { PlanResults } from './plan-results.ts'
import type { StoredObject } from './rules.ts'
import * as rules from './rules.ts'
import type { State } from './state.ts'
import type { Steps } from './steps.ts'
import type { TimeSlice } from './time-slice.ts'

type DeletionDependencies = {
  state: State
  owners: Owners
  found: PlanResults
  adoption: Adoption
  steps: Steps
  timeSlice: TimeSlice
}

/** Objects of a section that the files do not have. */
type PruneCandidates = {
  left: readonly StoredObject[]
  /** Those that are deleted, and those that end with their organization. */
  deleted: readonly StoredObject[]
  ending: readonly StoredObject[]
  /** Why they are too many. */
  excess: string | undefined
}

/** A deletion that something is in the way of. */
type Blocked = { kind: Kind; stored: StoredObject; excess: string | undefined }

/** What the set owns and no file has any more, or what a rollback takes back. */
export class Deletions {
  readonly #context: PlanContext
  readonly #state: State
  readonly #owners: Owners
  readonly #found: PlanResults
  readonly #adoption: Adoption
  readonly #steps: Steps
  readonly #timeSlice: TimeSlice
  readonly #pruneCandidates = new Map<Section, PruneCandidates>()
  /** Ids of what was deleted before another got its name. */
  readonly #early = new Set<string>()
  /** Ids of what something refers to. */
  #referred: Set<string> | undefined
  readonly #ended: Section[] = []
  #blocked: Blocked[] = []
  /** Ids of what the apply that is rolled back made. */
  rolledBack: ReadonlySet<string> | undefined

  constructor(
    context: PlanContext,
    { state, owners, found, adoption, steps, timeSlice }: DeletionDependencies,
  ) {
    this.#context = context
    this.#state = state
    this.#owners = owners
    this.#found = found
    this.#adoption = adoption
    this.#steps = steps
    this.#timeSlice = timeSlice
  }

  /** What ends with its organization, as nothing deletes it before: kept as a change, though nobody makes it. */
  get ended(): readonly Section[] {
    return this.#ended
  }

  /**
   * What no file has and whose name another gets is deleted first, unless something refers to it: that may get another
   * reference later, and a deletion might end it, or be refused because of it.
   */
  async deleteEarly(kind: Kind, stored: StoredObject): Promise<void> {
    const { deleted, excess } = this.#pruneCandidatesOf(kind)
    if (!deleted.some(({ id }) => id === stored.id) || this.#isReferredTo(stored)) return
    if (excess !== undefined && !this.#context.on.isRehearsal) return
    this.#early.add(stored.id)
    await this.#delete(kind, stored, { excess })
  }

  /** Whether something of the sections that were read refers to an object, or is in it. */
  #isReferredTo({ id }: StoredObject): boolean {
    this.#referred ??= new Set(
      sections
        .filter((section) => this.#state.has(section))
        .flatMap((section) =>
          this.#state
            .all(section)
            .flatMap(({ orgId, record }) => [
              ...(section === 'organizations' || orgId === null ? [] : [orgId]),
              ...kinds[section].fields.flatMap(({ refersTo, field }) =>
                refersTo === undefined ? [] : [record[field]].flat().map(String),
              ),
            ]),
        ),
    )
    return this.#referred.has(id)
  }

  /** Whether an organization goes in which an object is: the object ends with it. */
  #isInDeletedOrg({ section, orgId }: StoredObject): boolean {
    if (section === 'organizations' || orgId === null || !this.#context.request.prune) return false
    const organization = this.#state.get('organizations', orgId)
    return organization !== undefined && this.#isToBeDeleted(organization)
  }

  /** Whether an object is in no file any more, or was made by the apply that is rolled back. */
  #isToBeDeleted(stored: StoredObject): boolean {
    if (this.rolledBack) return this.rolledBack.has(stored.id)
    const isManaged = this.#context.request.document[stored.section] !== undefined
    return isManaged && this.#owners.isOwn(stored) && !this.#found.isDesired(stored.id)
  }

  /** Whether the apply deletes an object, once it is known what the files mean in its section. */
  isLeaving(stored: StoredObject): boolean {
    return (
      this.#context.request.prune && kinds[stored.section].remove !== undefined && this.#isToBeDeleted(stored)
    )
  }

  /** Objects of a section that are not in the files any more, once it is known what the files mean. */
  #pruneCandidatesOf(kind: Kind): PruneCandidates {
    const { section } = kind
    const known = this.#pruneCandidates.get(section)
    if (known) return known
    const { prune, pruneLimit } = this.#context.request
    const all = this.#state.all(section)
    const left = all.filter((stored) => this.#isToBeDeleted(stored)).sort(byKey)
    const [ending, deleted] = prune
      ? split(left, (stored) => section === 'memberships' && this.#isInDeletedOrg(stored))
      : [[], []]
    const owned = all.filter((stored) => this.#owners.isOwn(stored)).length
    const count = { deletions: deleted.length, owned, limit: pruneLimit }
    const leaving = { left, ending, deleted, excess: rules.pruneRefusal(section, count) }
    this.#pruneCandidates.set(section, leaving)
    return leaving
  }

  async deleteSection(kind: Kind): Promise<void> {
    const { section } = kind
    const { request, on } = this.#context
    const { left, ending, deleted, excess } = this.#pruneCandidatesOf(kind)
    if (!request.prune) {
      for (const stored of left) this.#found.leave(section, stored)
      return
    }
    if (kind.remove === undefined) {
      for (const stored of left) await this.#adoption.release(kind, stored)
      return
    }
    if (excess !== undefined && !on.isRehearsal) return this.#found.fault('body.pruneLimit', excess)
    // The last administrator of an organization cannot be removed, but goes with it.
    for (const stored of ending) this.#end(kind, stored)
    for (const stored of rules.childrenFirst(kind, deleted)) {
      const now = this.#state.get(section, stored.id)
      if (!now || this.#early.has(now.id)) continue
      // What still refers to it goes with the organization.
      const onConflict = this.#isInDeletedOrg(now)
        ? () => this.#end(kind, now)
        : () => this.#blocked.push({ kind, stored: now, excess })
      await this.#delete(kind, now, { excess, onConflict })
      await this.#timeSlice.yieldIfDue()
    }
  }

  /** Tries again what could not be deleted yet, such as a group that a condition of a filter is on: groups go before filters. */
  async retryBlocked(): Promise<void> {
    for (let isStuck = false; this.#blocked.length > 0; ) {
      const waiting = this.#blocked
      this.#blocked = []
      for (const one of waiting) {
        const { kind, excess } = one
        const stored = this.#state.get(kind.section, one.stored.id)
        if (!stored) continue
        // Once no deletion makes room for another, what stands in the way is a fault.
        const onConflict = isStuck ? undefined : () => this.#blocked.push(one)
        await this.#delete(kind, stored, { excess, onConflict })
        await this.#timeSlice.yieldIfDue()
      }
      isStuck = this.#blocked.length === waiting.length
    }
  }

  /** What belongs to another set is not touched, and would go with its organization. */
  async #delete(
    kind: Kind,
    stored: StoredObject,
    on: { excess: string | undefined; onConflict?: (() => void) | undefined },
  ): Promise<void> {
    const others = await this.#othersIn(kind, stored)
    if (others.length === 0) return this.#steps.delete(kind, stored, on)
    const names = others.map((name) => `"${name}"`).join(', ')
    const message = `cannot delete "${stored.key}": other sets have objects in it (${names}): prune these first`
    // Its plan had no such fault.
    if (!this.#context.on.isRehearsal) throw rules.outdatedPlan([message])
    this.#found.fault('body.document.organizations', message)
  }

  /** Other sets that have objects in an organization. Whoever may not delete it is not told. */
  async #othersIn({ section, remove }: Kind, stored: StoredObject): Promise<readonly string[]> {
    if (section !== 'organizations') return []
    const { calls, on } = this.#context
    return refusalOf(calls, remove!, on.admitted) === undefined ? this.#owners.otherSetsIn(stored) : []
  }

  #end(kind: Kind, stored: StoredObject): void {
    this.#found.addApplied(stored, { action: 'end', before: this.#state.file(kind, stored), after: null })
    this.#ended.push(kind.section)
  }
}

const byKey = (one: StoredObject, other: StoredObject): number => (one.key < other.key ? -1 : 1)

const split = <T>(all: readonly T[], isFirst: (one: T) => boolean): [T[], T[]] => [
  all.filter(isFirst),
  all.filter((one) => !isFirst(one)),
]
