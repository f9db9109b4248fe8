import type { Db } from '../storage/open.ts'
import type { Section } from './contract.ts'
import type { Subject } from './findings.ts'
import type { Planner } from './request.ts'
import type { Stored } from './rules.ts'
import type { State } from './state.ts'
import * as store from './store.ts'

/** Which set owns each object of the sections that were read. */
export class Owners {
  readonly #tx: Db
  readonly #with: Planner
  readonly #owned = new Map<Section, Map<string, store.Ownership>>()

  constructor(tx: Db, planner: Planner) {
    this.#tx = tx
    this.#with = planner
  }

  async read(section: Section): Promise<void> {
    this.#owned.set(section, await store.listOwned(this.#tx, this.#with.scope, section))
  }

  of({ section, id }: Stored): store.Ownership | undefined {
    return this.#owned.get(section)?.get(id)
  }

  /** Whether the set that is applied owns it. */
  isOwn(stored: Stored): boolean {
    const { setId } = this.#with
    return setId !== undefined && this.of(stored)?.setId === setId
  }

  /** Objects of the set that exist no more: somebody has deleted them since the last apply. */
  gone(section: Section, state: State): Subject[] {
    const owned = [...(this.#owned.get(section) ?? [])]
    return owned.flatMap(([id, { setId, orgId }]) =>
      setId === this.#with.setId && state.get(section, id) === undefined ? [{ section, id, orgId }] : [],
    )
  }

  /** Of several of one name the one that the set has: otherwise whoever makes another would stop the set. */
  ownOf(found: Stored[]): Stored[] {
    if (found.length < 2) return found
    const own = found.filter((one) => this.isOwn(one))
    return own.length === 1 ? own : found
  }

  async disown({ id }: Stored): Promise<void> {
    const { setId } = this.#with
    if (setId !== undefined) await store.disown(this.#tx, setId, id)
  }

  async own({ section, id, orgId }: Stored): Promise<void> {
    const { setId, owner } = this.#with
    // A plan of a set that does not exist yet owns nothing.
    if (setId !== undefined)
      await store.own(this.#tx, setId, { section, id, orgId, partnerId: owner.partnerId })
  }
}
