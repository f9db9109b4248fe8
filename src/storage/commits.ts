/** Who wants to know that something was committed. */
export class Commits {
  readonly #listeners: (() => void)[] = []

  listen(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** What was committed stays committed: a listener's failure is only warned about. */
  announce(): void {
    for (const listener of this.#listeners) {
      try {
        listener()
      } catch (error) {
        process.emitWarning(error instanceof Error ? error : String(error))
      }
    }
  }
}
