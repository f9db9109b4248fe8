import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  consistencySpans,
  Frontier,
  inclusionSpans,
  isConsistent,
  isIncluded,
  leafHash,
  type Span,
  spanHash,
} from '../../src/audit/checkpoints/merkle-tree.ts'
import {
  appendLeaves,
  frontierAt,
  MissingTileError,
  nodeReader,
  treeSize,
} from '../../src/audit/checkpoints/store.ts'
import type { Storage } from '../../src/storage/open.ts'
import { onEveryDatabase } from '../databases.ts'

const leaves = Array.from({ length: 70_000 }, (_, n) => leafHash(`entry ${n}`))

/** The root of a plain tree over the first `size` leaves. */
function rootOf(size: number): Buffer {
  const tree = new Frontier()
  for (const leaf of leaves.slice(0, size)) tree.push(leaf)
  return tree.root()
}

const grow = (storage: Storage, chain: string, from: number, to: number) =>
  storage.write((tx) => appendLeaves(tx, chain, leaves.slice(from, to)))

onEveryDatabase((kind, open) => {
  const runs = kind === 'sqlite' ? 30 : 6

  it('tiles give the roots and proofs of a plain tree, however the chain grew', async () => {
    const { storage } = await open()
    let chains = 0
    const steps = fc.array(fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 200, max: 700 })), {
      minLength: 1,
      maxLength: 6,
    })
    const check = async (grown: number[], a: number, b: number) => {
      const chain = `chain ${++chains}`
      let size = 0
      for (const step of grown) {
        await grow(storage, chain, size, size + step)
        size += step
      }
      expect(await treeSize(storage.read, chain)).toBe(size)
      const older = Math.floor(a * size)
      const index = Math.floor(b * size)
      const read = nodeReader(storage.read, chain)
      const pathOf = (spans: Span[]) => Promise.all(spans.map((span) => spanHash(read, span)))
      const root = (await frontierAt(storage.read, chain, size)).root()
      const before = (await frontierAt(storage.read, chain, older)).root()
      expect([root, before]).toEqual([rootOf(size), rootOf(older)])
      const path = await pathOf(inclusionSpans(index, size))
      expect(isIncluded(leaves[index]!, index, size, path, root)).toBe(true)
      const growth = await pathOf(consistencySpans(older, size))
      expect(isConsistent({ size: older, root: before }, { size, root }, growth)).toBe(true)
    }
    const part = fc.double({ min: 0, max: 0.999, noNaN: true })
    await fc.assert(fc.asyncProperty(steps, part, part, check), { numRuns: runs })
  })

  it('tiles reach a third level, and the tree continues from there', async () => {
    const { storage } = await open()
    const sizes = [65_535, 65_536, 65_537, 70_000]
    let size = 0
    for (const next of sizes) {
      await grow(storage, 'large', size, next)
      size = next
      expect((await frontierAt(storage.read, 'large', size)).root()).toEqual(rootOf(size))
    }
    expect((await frontierAt(storage.read, 'large', 300)).root()).toEqual(rootOf(300))
  })

  it('a missing tile is reported instead of replaced', async () => {
    const { storage } = await open()
    await grow(storage, 'short', 0, 300)
    await expect(frontierAt(storage.read, 'short', 301)).rejects.toThrow(MissingTileError)
    await storage.write((tx) => tx.deleteFrom('audit_tiles').where('level', '=', 1).execute())
    await expect(frontierAt(storage.read, 'short', 300)).rejects.toThrow(MissingTileError)
  })
})
