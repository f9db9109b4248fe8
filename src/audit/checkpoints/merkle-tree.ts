import { hash } from 'node:crypto'

/**
 * The Merkle tree of RFC 6962, section 2.1, over the canonical texts of a chain: leaf i is the entry with seq i
 * + 1. Pure. Sizes and positions go up to 2^53, so nothing here counts in 32 bits.
 */

const sha256 = (bytes: Uint8Array): Buffer => hash('sha256', bytes, 'buffer')

export const emptyRoot: Buffer = sha256(Buffer.alloc(0))

/** SHA-256 of 0x00 and the canonical text. */
export function leafHash(canonical: Uint8Array | string): Buffer {
  const text = typeof canonical === 'string' ? Buffer.from(canonical) : canonical
  const bytes = Buffer.allocUnsafe(text.length + 1)
  bytes[0] = 0
  bytes.set(text, 1)
  return sha256(bytes)
}

const pair = Buffer.alloc(65, 1)

/** SHA-256 of 0x01, left and right. */
export function nodeHash(left: Uint8Array, right: Uint8Array): Buffer {
  pair.set(left, 1)
  pair.set(right, 33)
  return sha256(pair)
}

/** A tree that only grows, stored as the roots of the perfect trees it is made of, largest first. */
export class Frontier {
  size: number
  readonly roots: Buffer[]

  constructor(size = 0, roots: readonly Uint8Array[] = []) {
    if (roots.length !== countPerfectTrees(size))
      throw new RangeError(`${roots.length} roots are no tree of ${size}`)
    this.size = size
    this.roots = roots.map((root) => Buffer.from(root))
  }

  push(leaf: Buffer): void {
    let node = leaf
    for (let rest = this.size; rest % 2 === 1; rest = (rest - 1) / 2) node = nodeHash(this.roots.pop()!, node)
    this.roots.push(node)
    this.size += 1
  }

  root(): Buffer {
    if (this.size === 0) return emptyRoot
    return this.roots.reduceRight((right, left) => nodeHash(left, right))
  }
}

/** How many perfect trees a tree of `size` leaves is made of: the number of ones in its binary form. */
function countPerfectTrees(size: number): number {
  let count = 0
  for (let rest = size; rest > 0; rest = Math.floor(rest / 2)) count += rest % 2
  return count
}

/** The leaves from `from` up to, but not including, `to`. */
export type Span = readonly [from: number, to: number]

/** The hash of the perfect tree `index` of 2^`level` leaves. */
export type ReadNode = (level: number, index: number) => Buffer | Promise<Buffer>

/** Where a span of two or more leaves divides (RFC 6962: the largest power of two below its length). */
function splitPoint([from, to]: Span): number {
  let size = 1
  while (size * 2 < to - from) size *= 2
  return from + size
}

/** The spans of the perfect trees that the first `size` leaves are made of, largest first. */
export function perfectSpans(size: number): Span[] {
  const spans: Span[] = []
  for (let from = 0; from < size; ) {
    let length = 1
    while (from + length * 2 <= size) length *= 2
    spans.push([from, from + length])
    from += length
  }
  return spans
}

/** The hash of a span, computed from stored perfect trees. */
export async function spanHash(read: ReadNode, span: Span): Promise<Buffer> {
  const [from, to] = span
  if (to === from) return emptyRoot
  const level = Math.log2(to - from)
  if (Number.isInteger(level) && from % (to - from) === 0) return read(level, from / (to - from))
  const middle = splitPoint(span)
  return nodeHash(await spanHash(read, [from, middle]), await spanHash(read, [middle, to]))
}

/** The proof that leaf `index` is in the first `size`: the audit path, lowest first (RFC 6962, 2.1.1). */
export function inclusionSpans(index: number, size: number): Span[] {
  if (!(index >= 0 && index < size)) throw new RangeError(`no leaf ${index} in a tree of ${size}`)
  const path: Span[] = []
  for (let span: Span = [0, size]; span[1] - span[0] > 1; ) {
    const middle = splitPoint(span)
    const left: Span = [span[0], middle]
    const right: Span = [middle, span[1]]
    path.unshift(index < middle ? right : left)
    span = index < middle ? left : right
  }
  return path
}

/** The proof that the first `older` leaves are still the beginning of the first `size` (RFC 6962, 2.1.2). */
export function consistencySpans(older: number, size: number): Span[] {
  if (!(older >= 0 && older <= size)) throw new RangeError(`a tree of ${size} has no first ${older}`)
  if (older === 0 || older === size) return []
  const path: Span[] = []
  let span: Span = [0, size]
  while (span[1] !== older) {
    const middle = splitPoint(span)
    const left: Span = [span[0], middle]
    const right: Span = [middle, span[1]]
    path.unshift(older <= middle ? right : left)
    span = older <= middle ? left : right
  }
  // The root of the older tree is left out: the caller knows it.
  return span[0] === 0 ? path : [span, ...path]
}

/** Whether a leaf is in a tree (RFC 9162, 2.1.3.2). */
export function isIncluded(leaf: Buffer, index: number, size: number, path: Buffer[], root: Buffer): boolean {
  if (!(index >= 0 && index < size)) return false
  let node = leaf
  let at = index
  let last = size - 1
  for (const sibling of path) {
    if (last === 0) return false
    if (at % 2 === 1 || at === last) {
      node = nodeHash(sibling, node)
      while (at % 2 === 0 && at !== 0) [at, last] = [at / 2, Math.floor(last / 2)]
    } else {
      node = nodeHash(node, sibling)
    }
    ;[at, last] = [Math.floor(at / 2), Math.floor(last / 2)]
  }
  return last === 0 && node.equals(root)
}

export type TreeHead = { size: number; root: Buffer }

/** Whether a tree is an older one with leaves appended (RFC 9162, 2.1.4.2). */
export function isConsistent(older: TreeHead, newer: TreeHead, path: Buffer[]): boolean {
  if (older.size > newer.size) return false
  if (older.size === newer.size) return path.length === 0 && older.root.equals(newer.root)
  if (older.size === 0) return path.length === 0 && older.root.equals(emptyRoot)
  let at = older.size - 1
  let last = newer.size - 1
  while (at % 2 === 1) [at, last] = [(at - 1) / 2, Math.floor(last / 2)]
  // A perfect older tree is the first step of its own proof.
  const [first, ...rest] = at === 0 ? [older.root, ...path] : path
  if (first === undefined) return false
  let before = first
  let now = first
  for (const sibling of rest) {
    if (last === 0) return false
    if (at % 2 === 1 || at === last) {
      before = nodeHash(sibling, before)
      now = nodeHash(sibling, now)
      while (at % 2 === 0 && at !== 0) [at, last] = [at / 2, Math.floor(last / 2)]
    } else {
      now = nodeHash(now, sibling)
    }
    ;[at, last] = [Math.floor(at / 2), Math.floor(last / 2)]
  }
  return last === 0 && before.equals(older.root) && now.equals(newer.root)
}
