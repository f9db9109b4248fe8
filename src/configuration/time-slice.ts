import { setImmediate } from 'node:timers/promises'
import { invalid } from '../core/errors.ts'

/** Milliseconds after which other requests get their turn. */
const turnMs = 10
/** Milliseconds of a plan. On SQLite it holds the one writer, which gives up on it after ten seconds. */
const longestMs = 8000

/** How long a plan or an export has taken, in all and since other requests had their turn. */
export class TimeSlice {
  readonly #begun = performance.now()
  readonly #longestMs: number
  #turn = this.#begun

  constructor(max = longestMs) {
    this.#longestMs = max
  }

  /**
   * Other requests get their turn: on SQLite the transaction runs in the thread that serves them.
   * @throws invalid_request when the plan takes too long
   */
  async yieldIfDue(): Promise<void> {
    const now = performance.now()
    if (now - this.#begun > this.#longestMs) {
      const message =
        'this is too much at once: name an organization with orgId, or apply a part of the files first'
      throw invalid([{ path: 'body.document', message }], message)
    }
    if (now - this.#turn < turnMs) return
    await setImmediate()
    this.#turn = performance.now()
  }
}
