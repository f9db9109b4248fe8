const sayAgainMs = 3_600_000
/** Most ids that are remembered. */
const maxRemembered = 10_000

/** Limits messages to one an hour for each id. */
export class HourlyThrottle {
  /** When each id is due again, the oldest first. */
  readonly #remembered = new Map<string, number>()

  /** Whether a message about this id is due; then it counts as sent. */
  isDue(id: string): boolean {
    const now = performance.now()
    for (const [other, until] of this.#remembered) {
      if (until > now && this.#remembered.size < maxRemembered) break
      this.#remembered.delete(other)
    }
    if (this.#remembered.has(id)) return false
    this.#remembered.set(id, now + sayAgainMs)
    return true
  }

  get size(): number {
    return this.#remembered.size
  }
}
