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

  /** Before a step. `read`: what the keys that it may affect may do by now. */
  async begin(read: () => Promise<AccessOfKeys>): Promise<KeysOfStep> {
    const before = await read()
    for (const [id, access] of before) if (!this.#before.has(id)) this.#before.set(id, access)
    const step: KeysOfStep = {
      count: before.size,
      end: async () => {
        const after = before.size === 0 ? before : await read()
        for (const [id, was] of before) this.#note(step, id, { was, is: after.get(id) })
      },
      losses: () => this.#lossesWith(step),
    }
    return step
  }

  #note(step: KeysOfStep, id: string, { was, is }: { was: KeyAccess; is: KeyAccess | undefined }): void {
    // Keys that have ended are counted with what ended them.
    if (is === undefined) {
      this.#now.delete(id)
      return
    }
    this.#now.set(id, is)
    if (lossBetween(was, is) !== undefined) this.#takenBy.set(id, step)
  }

  #lossesWith(step: KeysOfStep): { all: number; part: number } {
    const losses = [...this.#now].flatMap(([id, is]) =>
      this.#takenBy.get(id) === step ? [lossBetween(this.#before.get(id)!, is)] : [],
    )
    const count = (loss: 'all' | 'part') => losses.filter((one) => one === loss).length
    return { all: count('all'), part: count('part') }
  }
}
