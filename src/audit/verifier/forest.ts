import { type Frontier, nodeHash, perfectSpans, type Span } from '../checkpoints/tree.ts'

export type PerfectTree = { from: number; size: number; hash: Uint8Array }

/**
 * The perfect trees over a run of leaves that may begin anywhere: of neighbours made apart, one tree comes by
 * pushing those of the right onto those of the left.
 */
export class Forest {
  readonly trees: PerfectTree[] = []

  /** Neighbours that are the two halves of one tree become that tree. */
  push(tree: PerfectTree): void {
    let last = tree
    for (let before = this.trees.at(-1); before; before = this.trees.at(-1)) {
      if (before.size !== last.size || before.from % (2 * last.size) !== 0) break
      this.trees.pop()
      last = { from: before.from, size: 2 * last.size, hash: nodeHash(before.hash, last.hash) }
    }
    this.trees.push(last)
  }

  root(empty: Buffer): Buffer {
    if (this.trees.length === 0) return empty
    return Buffer.from(this.trees.map(({ hash }) => hash).reduceRight((right, left) => nodeHash(left, right)))
  }

  static of(frontier: Frontier): Forest {
    const forest = new Forest()
    for (const [at, [from, to]] of perfectSpans(frontier.size).entries() as Iterable<[number, Span]>) {
      forest.push({ from, size: to - from, hash: frontier.roots[at]! })
    }
    return forest
  }
}
