import type { AccessOfKeys } from '../credentials/api-keys/access.ts'
import { type KeyAccess, lossBetween } from '../credentials/api-keys/rules.ts'

/** Keys whose creators a step changes, and what the step takes from them. */
type KeysOfStep = {
  count: number
  /** After the step. */
  end(): Promise<void>
  /** After all steps: how many keys can do nothing any more, and how many can do less. */
  losses(): { all: number; part: number }
}

/**
 * What API keys lose by a plan as a whole: one step may give back what another takes, and several may take from one key, which
 * counts once, with the last of them.
 */
export class KeyLosses {
  readonly #before = new Map<string, KeyAccess>()
  readonly #now = new Map<string, KeyAccess>()
  /** The step that took something from a key last. */
  readonly #takenBy = new Map<string, KeysOfStep>()
  /** Reads the keys of each step that was about some again. */
  readonly #reread: (() => Promise<void>)[] = []

  /** Before a step. `read`: what the keys that it may affect may do by now. */
  async begin(read: () => Promise<AccessOfKeys>): Promise<KeysOfStep> {
    const before = await read()
    for (const [id, access] of before) if (!this.#before.has(id)) this.#before.set(id, access)
    const step: KeysOfStep = {
      count: before.size,
      end: async () => {
        if (before.size === 0) return
        const after = await read()
        for (const [id, was] of before) {
          const is = after.get(id)
          if (is && lossBetween(was, is) !== undefined) this.#takenBy.set(id, step)
        }
        this.#reread.push(() => this.#readNow([...before.keys()], read))
      },
      losses: () => this.#lossesWith(step),
    }
    return step
  }

  /** After the last step of the plan: files may also change the keys themselves, or end them. */
  async finish(): Promise<void> {
    for (const reread of this.#reread) await reread()
  }

  /** Keys that have ended are counted with what ended them. */
  async #readNow(ids: readonly string[], read: () => Promise<AccessOfKeys>): Promise<void> {
    const now = await read()
    for (const id of ids) {
      const access = now.get(id)
      if (access) this.#now.set(id, access)
    }
  }

  /** What the keys could do before the plan, for its version. */
  get mark(): unknown {
    const marks = [...this.#before].map(([id, { permissions, siteIds, groupIds }]) => [
      id,
      [...permissions].sort(),
      siteIds,
      groupIds,
    ])
    return marks.map((one) => JSON.stringify(one)).sort()
  }

  #lossesWith(step: KeysOfStep): { all: number; part: number } {
    const losses = [...this.#now].flatMap(([id, is]) =>
      this.#takenBy.get(id) === step ? [lossBetween(this.#before.get(id)!, is)] : [],
    )
    const count = (loss: 'all' | 'part') => losses.filter((one) => one === loss).length
    return { all: count('all'), part: count('part') }
  }
}
