import { setTimeout as sleep } from 'node:timers/promises'

/** Waits while the work has no slice. `keep` is called now and then meanwhile, for what has to be renewed. */
export type Pause = (keep: () => Promise<void>) => Promise<void>

/** Work of unknown length that stops when a slice of time is over, and goes on with the next one. */
export class Sliced {
  readonly #keepMs: number
  readonly #ended: Promise<true>
  #until = 0
  #resume = Promise.withResolvers<void>()
  #paused = Promise.withResolvers<false>()

  constructor(work: (pause: Pause) => Promise<unknown>, keepMs = 15_000) {
    this.#keepMs = keepMs
    this.#ended = this.#resume.promise.then(() => work(this.#pause)).then(() => true)
  }

  /** Goes on for about `ms`; true when the work has ended. @throws what it throws */
  run(ms: number): Promise<boolean> {
    this.#until = performance.now() + ms
    this.#paused = Promise.withResolvers()
    this.#resume.resolve()
    return Promise.race([this.#ended, this.#paused.promise])
  }

  readonly #pause: Pause = async (keep) => {
    if (performance.now() < this.#until) return
    this.#resume = Promise.withResolvers()
    const going = this.#resume.promise.then(() => true)
    this.#paused.resolve(false)
    let kept = performance.now()
    const renew = async () => {
      const now = performance.now()
      await keep()
      kept = now
    }
    while (!(await Promise.race([going, sleep(this.#keepMs, false, { ref: false })])))
      // Writes may be refused for a while (a copy of the database, an outage): it counts whether it is kept when it goes on.
      await renew().catch(() => {})
    if (performance.now() - kept >= this.#keepMs) await renew()
  }
}
