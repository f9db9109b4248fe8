const sayAgainMs = 3_600_000
/** Of so many it is known when they were last told of. */
const mostTold = 10_000

/** What is said of each once an hour, however often it happens. */
export class HourlyThrottle {
  /** When it is said again, the oldest first. */
  readonly #told = new Map<string, number>()

  /** Whether it is to be said of that one now; then it counts as said. */
  isDue(id: string): boolean {
    const now = performance.now()
    for (const [told, until] of this.#told) {
      if (until > now && this.#told.size < mostTold) break
      this.#told.delete(told)
    }
    if (this.#told.has(id)) return false
    this.#told.set(id, now + sayAgainMs)
    return true
  }

  get size(): number {
    return this.#told.size
  }
}
