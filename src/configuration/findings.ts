import type { Fault } from '../core/errors.ts'
import type { Change, Kind, Plan, Section } from './contract.ts'
import type { Item, Stored } from './rules.ts'
import * as rules from './rules.ts'
import type { State } from './state.ts'

/** Faults after which a plan ends: no more than fifty are listed. */
const mostFaults = 200

/** What a plan has found: what would change, what is at fault, and what the files have. */
export class Findings {
  readonly #state: State
  readonly #changes: Change[] = []
  readonly #faults: Fault[] = []
  readonly #left: Plan['left'] = []
  /** What ends with what is deleted, also where the caller may not see it. */
  readonly #ends: Record<string, number>[] = []
  /** Ids of what the files have of each section. */
  readonly #kept = new Set<string>()
  /** Names of what is in the files and could not be made: what names it is not at fault. */
  readonly #blocked = new Set<string>()

  constructor(state: State) {
    this.#state = state
  }

  get changes(): Change[] {
    return this.#changes
  }

  get faults(): readonly Fault[] {
    return this.#faults
  }

  get left(): Plan['left'] {
    return this.#left
  }

  get ends(): readonly Record<string, number>[] {
    return this.#ends
  }

  fault(path: string, message: string): void {
    this.#faults.push({ path, message })
  }

  addFaults(faults: readonly Fault[]): void {
    this.#faults.push(...faults)
  }

  leave(section: Section, stored: Stored): void {
    this.#left.push({ section, org: this.#state.org(stored), name: stored.key })
  }

  end(counts: Record<string, number>): void {
    this.#ends.push(counts)
  }

  isHopeless(): boolean {
    return this.#faults.length >= mostFaults
  }

  block(section: Section, key: unknown): void {
    this.#blocked.add(rules.labelOf(section, key))
  }

  blockItem(kind: Kind, item: Item): void {
    this.block(kind.section, item.key)
  }

  isBlocked(section: Section, key: string): boolean {
    return this.#blocked.has(rules.labelOf(section, key))
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
    this.#changes.push({ section, org, name: key, id, renamedFrom: null, ends: null, ...change })
  }
}
