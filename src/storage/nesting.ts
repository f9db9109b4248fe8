import { AsyncLocalStorage } from 'node:async_hooks'

/** Before Node 24 an AsyncLocalStorage slows down every promise; there the writer's time limit has to do. */
const cheap = Number(process.versions.node.split('.')[0]) >= 24

/** Refuses a write begun inside another write of the same storage: on SQLite it would wait for itself. */
export class Nesting {
  readonly #inside = cheap ? new AsyncLocalStorage<{ running: boolean }>() : undefined

  check(): void {
    if (this.#inside?.getStore()?.running) {
      throw new Error('write() was called inside a write(): use the tx it was given')
    }
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (!this.#inside) return work()
    const mark = { running: true }
    try {
      return await this.#inside.run(mark, work)
    } finally {
      mark.running = false
    }
  }
}
