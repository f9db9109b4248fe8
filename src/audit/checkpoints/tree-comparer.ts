import type { Db } from '../../storage/open.ts'
import { canonicalOffset, checksumOffset, entryPrefix, headerLine } from '../chain.ts'
import { type Anchor, toHeaderAnchor } from '../retention/anchors.ts'
import { orgOfChain } from '../rules.ts'
import type { Checkpoint } from './checkpoint.ts'
import { Frontier, leafHash } from './merkle-tree.ts'
import { leavesOfTile, tileWidth } from './store.ts'
import type { VerificationFault } from './verdicts.ts'

/** Builds a tree from the lines of a chain and compares it with the stored tree and the signed ones. */
export class TreeComparer {
  readonly #db: Db
  readonly #chain: string
  readonly #signed: readonly Checkpoint[]
  #tree = new Frontier()
  /** Leaves of the tile that is not full yet. */
  #leaves: Buffer[] = []

  constructor(db: Db, chain: string, signed: readonly Checkpoint[]) {
    this.#db = db
    this.#chain = chain
    this.#signed = signed
  }

  /** Begins after the removed entries; returns the header of the chain. */
  async begin(anchor: Anchor): Promise<string> {
    const { size, roots } = anchor.tree!
    this.#tree = new Frontier(size, roots)
    const first = size - (size % tileWidth)
    const stored = await leavesOfTile(this.#db, this.#chain, first / tileWidth)
    this.#leaves = stored.slice(0, size - first)
    return headerLine(orgOfChain(this.#chain), { anchor: toHeaderAnchor(anchor) })
  }

  async add(lines: string): Promise<VerificationFault | undefined> {
    for (const line of lines.split('\n')) {
      if (!line.startsWith(entryPrefix)) continue
      const fault = await this.#leaf(line)
      if (fault) return fault
    }
    return undefined
  }

  async #leaf(line: string): Promise<VerificationFault | undefined> {
    const leaf = leafHash(line.slice(canonicalOffset, -1))
    this.#tree.push(leaf)
    this.#leaves.push(leaf)
    const { size } = this.#tree
    for (const { head, root } of this.#signed) {
      if (head.seq !== size) continue
      if (
        line.slice(checksumOffset, checksumOffset + 64) !== head.checksum ||
        !this.#tree.root().equals(root)
      )
        return rewritten(size)
      // The stored tree covers at least what was signed.
      const fault = await this.#compare()
      if (fault) return fault
    }
    return size % tileWidth === 0 ? this.#compare() : undefined
  }

  /** Compares the leaves since the last full tile with the stored tile. */
  async #compare(): Promise<VerificationFault | undefined> {
    const { size } = this.#tree
    const first = size - this.#leaves.length
    const stored = await leavesOfTile(this.#db, this.#chain, first / tileWidth)
    // Entries that are not signed yet need not be in the tree.
    const known = stored.slice(0, this.#leaves.length)
    if (known.some((leaf, n) => !leaf.equals(this.#leaves[n]!))) return rewritten(size)
    if (size % tileWidth === 0) this.#leaves = []
    return undefined
  }
}

const rewritten = (seq: number): VerificationFault => ({
  kind: 'rewritten',
  message: `The entries up to ${seq} are not those that were signed`,
  seq,
})
