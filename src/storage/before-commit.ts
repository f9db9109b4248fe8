import type { Db } from './db.ts'

/** Does once what several writes have left to be done. If it fails, each is written by itself, with what it left alone. */
export type BeforeCommitHook<T> = (tx: Db, left: readonly T[]) => Promise<void>

/** What writes leave to be done before the commit that they share. */
export class BeforeCommitHooks {
  readonly #left: { finish: BeforeCommitHook<never>; what: unknown }[] = []

  add<T>(finish: BeforeCommitHook<T>, what: T): void {
    this.#left.push({ finish, what })
  }

  get size(): number {
    return this.#left.length
  }

  /** Forgets what was left since there was so much: the write that left it has failed. */
  cut(size: number): void {
    this.#left.length = size
  }

  async finish(tx: Db): Promise<void> {
    const kinds = Map.groupBy(this.#left, ({ finish }) => finish)
    for (const [finish, left] of kinds) await finish(tx, left.map(({ what }) => what) as never)
  }
}

/** Leaves something to be done before the transaction commits; false where every write has a commit of its own. */
export function beforeCommit<T>(tx: Db, finish: BeforeCommitHook<T>, what: T): boolean {
  const { leftovers } = tx.getExecutor() as { leftovers?: BeforeCommitHooks }
  leftovers?.add(finish, what)
  return leftovers !== undefined
}
