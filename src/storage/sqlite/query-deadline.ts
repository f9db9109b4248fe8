/** Checks for each reading of the clock, which costs as much as reading a row. */
const checksPerReading = 32

/** The time limit of the query that a connection runs. */
export class QueryDeadline {
  #end = Number.POSITIVE_INFINITY
  #checks = 0

  begin(timeoutMs: number): void {
    this.#end = performance.now() + timeoutMs
    this.#checks = 0
  }

  /** @throws an error like SQLite's for an interrupted query */
  check(): void {
    this.#checks += 1
    if (this.#checks % checksPerReading !== 0 || performance.now() < this.#end) return
    throw Object.assign(new Error('interrupted'), { code: 'SQLITE_INTERRUPT' })
  }
}
