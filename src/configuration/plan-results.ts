import type { Fault } from '../core/errors.ts'
import { type Change, type Kind, kinds, type Plan, type Section } from './contract.ts'
import { type Counts, type Ended, onlyEnding, seenCounts } from './endings.ts'
import { type AppliedChange, idsIn, storableValues } from './history/applied-changes.ts'
import type { Owners } from './owners.ts'
import {
  type AuditedObject,
  type DesiredObject,
  objectLabel,
  type StoredObject,
  type Values,
} from './rules.ts'
import type { State } from './state.ts'

/** A plan ends after so many faults. The reply lists the first fifty (`invalid()` in `src/core/errors.ts`). */
const maxFaults = 200

type NewlyApplied = Pick<AppliedChange, 'action' | 'before' | 'after'> & {
  /** The record from before, where the object was changed. */
  former?: Values
  /** Fields that were changed and that the service does not tell. */
  hidden?: readonly string[]
  ends?: AppliedChange['ends'] | undefined
  formerId?: string | undefined
}

type Mark = { faults: number; changes: number; ends: number }

/** An object that could not be made or changed as a whole, until something else has changed. */
export type Failure = {
  /** None where what it names could not be made. */
  faults: readonly Fault[]
  /** Changes that were refused without having been tried: they are found again with the next attempt. */
  untried: readonly Change[]
  /** What these would end. */
  untriedEnds: readonly EndingCount[]
}

/** How much ends with an object, whether the caller may see that, and whether a rollback may end what came since. */
export type EndingCount = {
  counts: Counts
  isVisible: boolean
  /** With which object: as much that ends with another is another plan. */
  of: string
  comesAgain?: boolean | undefined
  /** With a change that was made in the transaction. */
  isDone: boolean
}

/** What a plan has found: what would change, what is at fault, and what the files have. */
export class PlanResults {
  readonly #state: State
  readonly #owners: Owners
  readonly #changes: Change[] = []
  /** What each change is about. */
  readonly #subjects = new Map<Change, AuditedObject>()
  /** What ends with each. */
  readonly #ended = new Map<Change, readonly Ended[]>()
  /** Those that were refused and not made in the transaction either. */
  readonly #untried = new Set<Change>()
  readonly #applied: AppliedChange[] = []
  readonly #faults: Fault[] = []
  /** What the caller may not do, at its place in the files, once for each reason. */
  readonly #refusals = new Map<string, Fault>()
  readonly #left: Plan['left'] = []
  readonly #renamedByHand: NonNullable<Plan['renamedByHand']> = []
  /** What ends with what is deleted. */
  readonly #ends: EndingCount[] = []
  /** Ids of what the files have of each section. */
  readonly #desired = new Set<string>()
  /** Names of what is in the files and could not be made: what names it is not at fault. */
  readonly #failed = new Set<string>()

  constructor(state: State, owners: Owners) {
    this.#state = state
    this.#owners = owners
  }

  get changes(): Change[] {
    return this.#changes
  }

  get subjects(): readonly AuditedObject[] {
    return this.#changes.map((change) => this.#subjects.get(change)!)
  }

  get faults(): readonly Fault[] {
    return this.#faults
  }

  /** Of changes that a plan would list: a plan with faults lists none. */
  get refusals(): readonly Fault[] {
    return [...this.#refusals.values()]
  }

  get left(): Plan['left'] {
    return this.#left
  }

  get renamedByHand(): NonNullable<Plan['renamedByHand']> {
    return this.#renamedByHand
  }

  get ends(): readonly EndingCount[] {
    return this.#ends
  }

  /** What was changed, with what is kept of its values. */
  get applied(): readonly AppliedChange[] {
    return this.#applied
  }

  addApplied(
    stored: StoredObject,
    { action, before, after, former = stored.record, hidden = [], ends, formerId }: NewlyApplied,
  ): void {
    const { section, id, orgId, key, record } = stored
    const { name: nameInFiles = key } = this.#owners.of(stored) ?? {}
    const kept = storableValues(kinds[section], before, after)
    const ids = {
      before: idsIn(section, former, kept.before),
      after: idsIn(section, record, kept.after),
    }
    // Whoever may not read what an object refers to cannot keep that: made again without it, it might reach further than before.
    const isWhole = action === 'delete' || action === 'end'
    const unnamed = kinds[section].fields
      .filter(({ name, field, refersTo }) => {
        const isSet = [record[field] ?? []].flat().length > 0
        return isWhole && refersTo !== undefined && isSet && !Object.hasOwn(before ?? {}, name)
      })
      .map(({ name }) => name)
    const kind: Kind = kinds[section]
    const notMadeAgain = isWhole ? kind.whyNotRecreated?.(record) : undefined
    const withheld = [...new Set([...kept.withheld, ...hidden, ...unnamed])]
    this.#applied.push({
      section,
      action,
      id,
      orgId,
      key,
      nameInFiles,
      ...kept,
      ids,
      withheld,
      ...(notMadeAgain !== undefined && { notMadeAgain }),
      ...(formerId !== undefined && { formerId }),
      ...(ends && { ends }),
    })
  }

  fault(path: string, message: string): void {
    this.#faults.push({ path, message })
  }

  refuse(path: string, why: string): void {
    const refusal = { path, message: `is refused: ${why}` }
    this.#refusals.set(JSON.stringify(refusal), refusal)
  }

  addFaults(faults: readonly Fault[]): void {
    this.#faults.push(...faults)
  }

  leave(section: Section, stored: StoredObject): void {
    this.#left.push({ section, org: this.#state.org(stored), name: stored.key })
  }

  /** The files follow a name that somebody has given it: nothing changes but what they called it. */
  followName(stored: StoredObject, nameInFiles: string): void {
    const { section, key: name } = stored
    this.#renamedByHand.push({ section, org: this.#state.org(stored), name, nameInFiles })
  }

  end(ending: EndingCount): void {
    this.#ends.push(ending)
  }

  isHopeless(): boolean {
    return this.#faults.length >= maxFaults
  }

  /** How far it has come, for `failureSince`. */
  mark(): Mark {
    return { faults: this.#faults.length, changes: this.#changes.length, ends: this.#ends.length }
  }

  /** How many changes were made in the transaction, by whoever may make them or not. */
  get done(): number {
    return this.#changes.length - this.#untried.size
  }

  /** undefined: all of an object was done, or refused, as its change says, or there was nothing to do. */
  failureSince({ faults, changes, ends }: Mark, { section, org, key }: DesiredObject): Failure | undefined {
    const found = this.#faults.slice(faults)
    const made = this.#changes.slice(changes)
    const isBlocked = made.length === 0 && this.hasFailed(section, org, key)
    if (found.length === 0 && !isBlocked) return undefined
    return {
      faults: found,
      untried: made.filter((one) => this.#untried.has(one)),
      untriedEnds: this.#ends.slice(ends).filter(({ isDone }) => !isDone),
    }
  }

  /** Forgets what is tried again: not what was done, as nothing is left to do of it. */
  withdraw(
    { section }: Kind,
    { org, key, identity }: DesiredObject,
    { faults, untried, untriedEnds }: Failure,
  ): void {
    const others = this.#faults.filter((one) => !faults.includes(one))
    this.#faults.splice(0, this.#faults.length, ...others)
    for (const one of untriedEnds) this.#ends.splice(this.#ends.indexOf(one), 1)
    for (const one of untried) {
      this.#changes.splice(this.#changes.indexOf(one), 1)
      this.#untried.delete(one)
    }
    this.#failed.delete(objectLabel(section, org, key))
    if (identity) this.#failed.delete(identity.id)
  }

  /** `org`: slug of its organization; undefined: of the tenant of the files. */
  markFailed(section: Section, org: unknown, key: unknown): void {
    this.#failed.add(objectLabel(section, org, key))
  }

  markItemFailed({ section }: Kind, { org, key, identity }: DesiredObject): void {
    this.markFailed(section, org, key)
    if (identity) this.#failed.add(identity.id)
  }

  hasFailed(section: Section, org: string | undefined, key: string): boolean {
    return this.#failed.has(objectLabel(section, org, key))
  }

  /** What a rollback was to make again, or to change, by its id. */
  hasIdFailed(id: string): boolean {
    return this.#failed.has(id)
  }

  markDesired(id: string): void {
    this.#desired.add(id)
  }

  isDesired(id: string): boolean {
    return this.#desired.has(id)
  }

  /** Says with each change what has ended with it, once all are made. */
  showEnded(): void {
    for (const [change, ended] of this.#ended) {
      const counts = seenCounts(ended)
      change.ends = (change.action === 'delete' ? counts : onlyEnding(counts)) ?? null
    }
  }

  /** `isDone`: it was made in the transaction, whether the caller may make it or not. */
  change(
    about: { section: Section; orgId: string | null; key: string; id: string | null },
    {
      isDone = true,
      ended = [],
      ...said
    }: Pick<Change, 'action' | 'before' | 'after' | 'refused'> &
      Partial<Change> & { isDone?: boolean; ended?: readonly Ended[] },
  ): void {
    const { section, key, id } = about
    const org = this.#state.org(about)
    const change = {
      section,
      org,
      name: key,
      id,
      renamedFrom: null,
      ends: null,
      warning: null,
      ...said,
    }
    this.#subjects.set(change, { section, id, orgId: about.orgId })
    this.#changes.push(change)
    if (ended.length > 0) this.#ended.set(change, ended)
    if (!isDone) this.#untried.add(change)
  }
}
