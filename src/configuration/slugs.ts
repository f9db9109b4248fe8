import type { Scope } from '../core/scope.ts'
import type { Db } from '../storage/open.ts'
import { exchangeSlug } from '../tenancy/store.ts'
import type { StoredObject } from './rules.ts'
import type { State } from './state.ts'

/** No slug has a space, so nobody has it. */
const asideOf = (id: string): string => `aside ${id}`

/**
 * Slugs are unique in the database at any time, and organizations of one apply may exchange them. So one that gives up its
 * slug is set aside while another gets it, beside the endpoints. It has its slug again while an endpoint does anything about
 * it: neither replies, events nor audit entries ever have another slug than those of the files.
 */
export class Slugs {
  readonly #tx: Db
  readonly #state: State

  constructor(tx: Db, state: State) {
    this.#tx = tx
    this.#state = state
  }

  /** Within a transaction of its own. `inTheWay`: has the slug that the step gives to another. */
  async during(
    scope: Scope,
    about: { stored: StoredObject | undefined; inTheWay: StoredObject | undefined },
    step: () => Promise<void>,
  ): Promise<void> {
    const { stored, inTheWay } = about
    const aside = stored && this.#state.isAside(stored) ? stored : undefined
    const holder = aside && this.#state.named('organizations', null, aside.key)[0]
    if (holder) await this.#setAside(scope, holder)
    if (aside) await exchangeSlug(this.#tx, scope, aside.id, { from: asideOf(aside.id), to: aside.key })
    if (inTheWay) await this.#setAside(scope, inTheWay)
    await step()
    if (!holder) return
    // Unless it is deleted, or has another slug by now.
    await this.#setAside(scope, aside!)
    await exchangeSlug(this.#tx, scope, holder.id, { from: asideOf(holder.id), to: holder.key })
  }

  #setAside(scope: Scope, { id, key }: StoredObject): Promise<void> {
    return exchangeSlug(this.#tx, scope, id, { from: key, to: asideOf(id) })
  }
}
