import type { Db } from './db.ts'

/** Does once what several writes have left to be done. If it fails, none of them counts. */
export type Finish<T> = (tx: Db, left: readonly T[]) => Promise<void>

/** What writes leave to be done before the commit that they share. */
export class Leftovers {
  readonly #left = new Map<Finish<never>, unknown[]>()

  add<T>(finish: Finish<T>, what: T): void {
    const known = this.#left.get(finish)
    if (known) known.push(what)
    else this.#left.set(finish, [what])
  }

  /** Adds those of a write that has succeeded. */
  take(others: Leftovers): void {
    for (const [finish, left] of others.#left)
      for (const what of left) this.add(finish as Finish<unknown>, what)
  }

  async finish(tx: Db): Promise<void> {
    for (const [finish, left] of this.#left) await finish(tx, left as never)
  }

  get isEmpty(): boolean {
    return this.#left.size === 0
  }
}

/** Leaves something to be done before the transaction commits; false where every write has a commit of its own. */
export function beforeCommit<T>(tx: Db, finish: Finish<T>, what: T): boolean {
  const { leftovers } = tx.getExecutor() as { leftovers?: Leftovers }
  leftovers?.add(finish, what)
  return leftovers !== undefined
}
