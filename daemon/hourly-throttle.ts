const sayAgainMs = 3_600_000
/** Most ids that are remembered. */
const maxRemembered = 10_000

/** Limits messages to one an hour for each id. */
export class HourlyThrottle {
  /** When each id is due again, the oldest first. */
  readonly #told = new Map<string, number>()

  /** Whether a message about this id is due; then it counts as sent. */
  isDue(id: string): boolean {
    const now = performance.now()
    for (const [told, until] of this.#told) {
      if (until > now && this.#told.size < maxRemembered) break
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
