import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  consistencySpans,
  emptyRoot,
  Frontier,
  inclusionSpans,
  isConsistent,
  isIncluded,
  leafHash,
  nodeHash,
  perfectSpans,
  type ReadNode,
  type Span,
  spanHash,
} from '../../src/audit/checkpoints/merkle-tree.ts'

// The leaves and roots that the reference implementation of RFC 6962 is tested with.
const leaves = [
  '',
  '00',
  '10',
  '2021',
  '3031',
  '40414243',
  '5051525354555657',
  '606162636465666768696a6b6c6d6e6f',
]
const roots = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
]

const leaf = (index: number): Buffer => leafHash(`entry ${index}`)

/** The root by definition, computed from all leaves. */
function rootByDefinition(from: number, to: number): Buffer {
  if (to === from) return emptyRoot
  if (to - from === 1) return leaf(from)
  let half = 1
  while (half * 2 < to - from) half *= 2
  return nodeHash(rootByDefinition(from, from + half), rootByDefinition(from + half, to))
}

const read: ReadNode = (level, index) => rootByDefinition(index * 2 ** level, (index + 1) * 2 ** level)
const hashesOf = (spans: Span[]) => Promise.all(spans.map((span) => spanHash(read, span)))
const treeOf = (size: number) => ({ size, root: rootByDefinition(0, size) })
const sizes = fc.integer({ min: 0, max: 70 })

describe('the tree', () => {
  it('has the known roots, including that of the empty tree', () => {
    const tree = new Frontier()
    expect(tree.root().toString('hex')).toBe(
      'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
    )
    for (const [index, bytes] of leaves.entries()) {
      tree.push(leafHash(Buffer.from(bytes, 'hex')))
      expect(tree.root().toString('hex')).toBe(roots[index])
    }
  })

  it('is the same in all representations', async () => {
    await fc.assert(
      fc.asyncProperty(sizes, async (size) => {
        const tree = new Frontier()
        for (let index = 0; index < size; index++) tree.push(leaf(index))
        expect(tree.root()).toEqual(rootByDefinition(0, size))
        expect(await spanHash(read, [0, size])).toEqual(rootByDefinition(0, size))
        expect(tree.roots).toEqual(await hashesOf(perfectSpans(size)))
        expect(new Frontier(size, tree.roots).root()).toEqual(tree.root())
      }),
    )
  })

  it('cannot be built from a wrong number of roots', () => {
    expect(() => new Frontier(3, [leaf(0)])).toThrow('no tree of 3')
  })
})

describe('proofs', () => {
  it('of inclusion hold for their own leaf and position only', async () => {
    await fc.assert(
      fc.asyncProperty(sizes, fc.nat(69), fc.nat(69), async (size, index, other) => {
        fc.pre(index < size)
        const path = await hashesOf(inclusionSpans(index, size))
        const { root } = treeOf(size)
        expect(isIncluded(leaf(index), index, size, path, root)).toBe(true)
        if (other !== index) {
          expect(isIncluded(leaf(other), index, size, path, root)).toBe(false)
          expect(isIncluded(leaf(index), other, size, path, root)).toBe(false)
        }
        expect(isIncluded(leaf(index), index, size, [...path, root], root)).toBe(false)
        if (path.length > 0) expect(isIncluded(leaf(index), index, size, path.slice(1), root)).toBe(false)
      }),
    )
  })

  it('of consistency hold for the grown tree only', async () => {
    await fc.assert(
      fc.asyncProperty(sizes, sizes, fc.nat(69), async (a, b, changed) => {
        const [size, grown] = a < b ? [a, b] : [b, a]
        const path = await hashesOf(consistencySpans(size, grown))
        expect(isConsistent(treeOf(size), treeOf(grown), path)).toBe(true)
        if (grown > size) expect(isConsistent(treeOf(grown), treeOf(size), path)).toBe(false)
        if (size > 0) {
          const altered = { size, root: leaf(changed + 1000) }
          expect(isConsistent(altered, treeOf(grown), path)).toBe(false)
        }
        if (size > 0 && grown > size) {
          const forged = { size: grown, root: leaf(changed + 1000) }
          expect(isConsistent(treeOf(size), forged, path)).toBe(false)
          expect(isConsistent(treeOf(size), treeOf(grown), path.slice(0, -1))).toBe(false)
        }
      }),
    )
  })

  it('have logarithmic length for sizes beyond 32 bits', () => {
    const size = 2 ** 40 + 12345
    expect(inclusionSpans(2 ** 39 + 7, size)).toHaveLength(41)
    expect(consistencySpans(2 ** 33 + 1, size).length).toBeLessThan(60)
  })
})
