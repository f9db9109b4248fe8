/** How many times it is asked before it looks at the clock, which takes as long as a row. */
const often = 32

/** How long the query goes on that a connection runs. */
export class QueryDeadline {
  #end = Number.POSITIVE_INFINITY
  #asked = 0

  begin(mostMs: number): void {
    this.#end = performance.now() + mostMs
    this.#asked = 0
  }

  /** @throws an error as SQLite has it for a query that was interrupted */
  check(): void {
    this.#asked += 1
    if (this.#asked % often !== 0 || performance.now() < this.#end) return
    throw Object.assign(new Error('interrupted'), { code: 'SQLITE_INTERRUPT' })
  }
}
