import { Kysely, type KyselyProps } from 'kysely'
import type { Db } from './db.ts'
import type { Tables } from './schema/tables.ts'

/**
 * Finishes the deferred work of several writes at once. If it fails, each write is run again by itself, with its own
 * work alone.
 */
export type BeforeCommitHook<T> = (tx: Db, deferred: readonly T[]) => Promise<void>

/** Work that writes defer until just before their shared commit. */
export class BeforeCommitHooks {
  readonly #deferred: { finish: BeforeCommitHook<never>; item: unknown }[] = []

  add<T>(finish: BeforeCommitHook<T>, item: T): void {
    this.#deferred.push({ finish, item })
  }

  /** What is deferred of this work, in order: also by other writes that share the commit. */
  of<T>(finish: BeforeCommitHook<T>): T[] {
    const same = this.#deferred.filter((one) => one.finish === finish)
    return same.map(({ item }) => item as T)
  }

  get size(): number {
    return this.#deferred.length
  }

  /** Drops what was added beyond this size: the write that added it has failed. */
  cut(size: number): void {
    this.#deferred.length = size
  }

  async finish(tx: Db): Promise<void> {
    const kinds = Map.groupBy(this.#deferred, ({ finish }) => finish)
    for (const [finish, deferred] of kinds) await finish(tx, deferred.map(({ item }) => item) as never)
  }
}

/** The transaction of a write that shares its commit with others. */
export class SharedTransaction extends Kysely<Tables> {
  #hooks: BeforeCommitHooks | undefined

  /** Without `hooks` nothing can be deferred: it is about to commit. */
  constructor(props: KyselyProps, hooks?: BeforeCommitHooks) {
    super(props)
    this.#hooks = hooks
  }

  /** Work that is deferred until the commit. */
  get hooks(): BeforeCommitHooks | undefined {
    return this.#hooks
  }

  /** The write is over, and defers nothing any more. */
  end(): void {
    this.#hooks = undefined
  }
}

/** What a transaction has deferred; undefined where every write has a commit of its own. */
export const deferredBy = (tx: Db): BeforeCommitHooks | undefined =>
  tx instanceof SharedTransaction ? tx.hooks : undefined

/** Defers work until just before the transaction commits; returns false where every write has a commit of its own. */
export function beforeCommit<T>(tx: Db, finish: BeforeCommitHook<T>, item: T): boolean {
  const deferred = deferredBy(tx)
  deferred?.add(finish, item)
  return deferred !== undefined
}
