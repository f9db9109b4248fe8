import { hash } from 'node:crypto'
import { type Frontier, perfectSpans } from '../checkpoints/merkle-tree.ts'

/** `hash` has one character per byte (latin1), which is faster to make and pass on than a buffer. */
export type PerfectTree = { from: number; size: number; hash: string }

const pair = Buffer.alloc(65, 1)

function nodeHash(left: string, right: string): string {
  pair.write(left, 1, 'latin1')
  pair.write(right, 33, 'latin1')
  return hash('sha256', pair, 'binary')
}

/**
 * The perfect trees over a run of leaves that may begin anywhere. Pushing the trees of one run onto those of
 * its left neighbor joins the two.
 */
export class Forest {
  readonly trees: PerfectTree[] = []

  /** Neighbors that are the two halves of one tree become that tree. */
  push(from: number, size: number, hash: string): void {
    let last = { from, size, hash }
    for (let before = this.trees.at(-1); before; before = this.trees.at(-1)) {
      if (before.size !== last.size || before.from % (2 * last.size) !== 0) break
      this.trees.pop()
      last = { from: before.from, size: 2 * last.size, hash: nodeHash(before.hash, last.hash) }
    }
    this.trees.push(last)
  }

  root(empty: Buffer): Buffer {
    if (this.trees.length === 0) return empty
    const root = this.trees.map(({ hash }) => hash).reduceRight((right, left) => nodeHash(left, right))
    return Buffer.from(root, 'latin1')
  }

  static of({ size, roots }: Frontier): Forest {
    const forest = new Forest()
    for (const [at, [from, to]] of perfectSpans(size).entries()) {
      forest.push(from, to - from, roots[at]!.toString('latin1'))
    }
    return forest
  }
}
