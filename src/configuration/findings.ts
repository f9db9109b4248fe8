import type { Fault } from '../core/errors.ts'
import { type Change, type Kind, kinds, type Plan, type Section } from './contract.ts'
import type { Counts } from './endings.ts'
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
}

/** How much ends with an object, whether the caller may see that, and whether a rollback may end what came since. */
export type Ending = {
  counts: Counts
  isVisible: boolean
  comesAgain?: boolean | undefined
}

/** What a plan has found: what would change, what is at fault, and what the files have. */
export class Findings {
  readonly #state: State
  readonly #owners: Owners
  readonly #changes: Change[] = []
  /** What each change is about. */
  readonly #subjects: AuditedObject[] = []
  readonly #applied: AppliedChange[] = []
  readonly #faults: Fault[] = []
  /** What the caller may not do, at its place in the files. */
  readonly #refusals: Fault[] = []
  readonly #left: Plan['left'] = []
  readonly #renamedByHand: NonNullable<Plan['renamedByHand']> = []
  /** What ends with what is deleted. */
  readonly #ends: Ending[] = []
  /** Ids of what the files have of each section. */
  readonly #kept = new Set<string>()
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
    return this.#subjects
  }

  get faults(): readonly Fault[] {
    return this.#faults
  }

  /** Of changes that a plan would list: a plan with faults lists none. */
  get refusals(): readonly Fault[] {
    return this.#refusals
  }

  get left(): Plan['left'] {
    return this.#left
  }

  get renamedByHand(): NonNullable<Plan['renamedByHand']> {
    return this.#renamedByHand
  }

  get ends(): readonly Ending[] {
    return this.#ends
  }

  /** What was changed, with what is kept of its values. */
  get applied(): readonly AppliedChange[] {
    return this.#applied
  }

  addApplied(
    stored: StoredObject,
    { action, before, after, former = stored.record, hidden = [], ends }: NewlyApplied,
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
    const notMadeAgain = isWhole ? kind.notMadeAgain?.(record) : undefined
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
      ...(ends && { ends }),
    })
  }

  fault(path: string, message: string): void {
    this.#faults.push({ path, message })
  }

  refuse(path: string, why: string): void {
    this.#refusals.push({ path, message: `is refused: ${why}` })
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

  end(ending: Ending): void {
    this.#ends.push(ending)
  }

  isHopeless(): boolean {
    return this.#faults.length >= maxFaults
  }

  /** How far it has come, for `faultsSince`. */
  mark(): { faults: number; applied: number } {
    return { faults: this.#faults.length, applied: this.#applied.length }
  }

  /**
   * The faults of an object of which nothing was done: none where what it names could not be made. undefined: something was
   * done, or there was nothing to do.
   */
  faultsSince(
    { faults, applied }: { faults: number; applied: number },
    { section, org, key }: DesiredObject,
  ): readonly Fault[] | undefined {
    const isAtFault = this.#faults.length > faults || this.hasFailed(section, org, key)
    return isAtFault && this.#applied.length === applied ? this.#faults.slice(faults) : undefined
  }

  /** Forgets what is tried again. */
  withdraw({ section }: Kind, { org, key, identity }: DesiredObject, faults: readonly Fault[]): void {
    const others = this.#faults.filter((one) => !faults.includes(one))
    this.#faults.splice(0, this.#faults.length, ...others)
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

  keep(id: string): void {
    this.#kept.add(id)
  }

  isKept(id: string): boolean {
    return this.#kept.has(id)
  }

  change(
    about: { section: Section; orgId: string | null; key: string; id: string | null },
    change: Pick<Change, 'action' | 'before' | 'after' | 'refused'> & Partial<Change>,
  ): void {
    const { section, key, id } = about
    const org = this.#state.org(about)
    this.#subjects.push({ section, id, orgId: about.orgId })
    this.#changes.push({
      section,
      org,
      name: key,
      id,
      renamedFrom: null,
      ends: null,
      warning: null,
      ...change,
    })
  }
}
