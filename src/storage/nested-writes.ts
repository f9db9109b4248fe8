import { AsyncLocalStorage } from 'node:async_hooks'

/**
 * Before Node 24 an AsyncLocalStorage slows down every promise, so there is none: callers do not take turns, and a
 * nested write fails only at the writer's time limit.
 */
export const isAsyncContextCheap = Number(process.versions.node.split('.')[0]) >= 24

/** Refuses a write begun inside another write of the same storage: on SQLite it would wait for itself. */
export class NestedWriteGuard {
  readonly #inside = isAsyncContextCheap ? new AsyncLocalStorage<{ readonly isOver: boolean }>() : undefined

  check(): void {
    if (this.#inside?.getStore()?.isOver === false) {
      throw new Error('write() was called inside a write(): use the tx it was given')
    }
  }

  /** Runs the work of a write; writes that it begins are nested until it is over. */
  run<T>(write: { readonly isOver: boolean }, work: () => Promise<T>): Promise<T> {
    return this.#inside ? this.#inside.run(write, work) : work()
  }
}
