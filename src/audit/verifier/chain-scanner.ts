import { hash } from 'node:crypto'
import {
  type ChainHead,
  canonicalOffset,
  checksumOf,
  checksumOffset,
  entryInfix,
  entryPrefix,
} from '../chain.ts'
import type { Forest } from './forest.ts'

const checksumSize = 64
const middleAt = checksumOffset + checksumSize

const newline = 0x0a
const brace = 0x7d
const quote = 0x22
const colon = 0x3a
const zero = 0x30
const linkField = '"prevChecksum":"'
/** Includes the closing quote of `result`, the field before it, to make eight bytes. */
const seqField = '","seq":'
const timeField = ',"timestamp":"'

/** Marks a missing offset. */
const noOffset = 255

const isStart = textMatcher(entryPrefix)
const isMiddle = textMatcher(entryInfix)
const lastLinkField = lastMatchFinder(linkField)
const lastTimeField = lastMatchFinder(timeField)

/**
 * Lines processed together: all are found, then all compared, then all hashed. The processor then keeps the
 * code of one step in its cache; line by line takes a twentieth longer.
 */
const batchSize = 128

export type ScanStart = {
  orgId: string | null
  /** The entry before. */
  head: ChainHead
  /** Grows by every entry when the tree is computed. */
  forest?: Forest | undefined
  /** Sequence numbers of the entries whose checksums are kept: of the pin and of restores. */
  watch?: readonly number[] | undefined
}

/** Scans a chain entry by entry, as long as each follows from the one before. */
export class ChainScanner {
  entries = 0
  seq: number
  link: string
  /** The checksums of the watched entries that were read. */
  readonly seen = new Map<number, string>()
  readonly forest: Forest | undefined
  readonly #watch: readonly number[]
  /** The text before the link in every entry. */
  readonly #before: DataView
  /** The checksums stated by the lines of a batch, after the one that the first line has to link to. */
  readonly #stated = Buffer.alloc(checksumSize * (batchSize + 1))
  readonly #statedView = viewOf(this.#stated)
  /** The next number, with the name of its field. */
  readonly #next = Buffer.alloc(32)
  readonly #nextView = viewOf(this.#next)
  /** Where each line of a batch ends. */
  readonly #ends = new Int32Array(batchSize)

  constructor({ orgId, head, forest, watch = [] }: ScanStart) {
    this.seq = head.seq
    this.link = head.checksum
    this.forest = forest
    this.#watch = watch
    this.#before = viewOf(Buffer.from(`"orgId":${JSON.stringify(orgId)},${linkField}`))
  }

  /**
   * Scans whole lines from `from`; returns where it stopped: after the last whole line, or before a line that
   * is not the next entry.
   */
  scan(bytes: Buffer, from: number): number {
    if (this.link.length !== checksumSize) return from
    const view = viewOf(bytes)
    for (let at = from; ; ) {
      this.#stated.write(this.link, 0, checksumSize, 'latin1')
      const linked = this.#countLinked(bytes, view, at, this.#findLines(bytes, at))
      const checksums = this.#hashLines(bytes, at, linked)
      const stated = this.#stated.toString('latin1', checksumSize, checksumSize + checksums.length)
      const count = commonChecksums(checksums, stated)
      at = this.#advance(bytes, at, count, checksums)
      if (count < batchSize) return at
    }
  }

  /**
   * Finds whole lines from `from`, a batch at most; returns how many. A line has to reach past the offset of
   * its text.
   */
  #findLines(bytes: Buffer, from: number): number {
    let at = from
    for (let line = 0; line < batchSize; line++) {
      const end = bytes.indexOf(newline, at + canonicalOffset)
      if (end === -1) return line
      this.#ends[line] = end
      at = end + 1
    }
    return batchSize
  }

  /**
   * How many lines from `from` link to the checksum stated by the line before and have the next number. Hashing
   * should take nearly all of the time, so this works in place, without calls or strings.
   */
  #countLinked(bytes: Buffer, view: DataView, from: number, lines: number): number {
    const before = this.#before
    const beforeLength = before.byteLength
    const stated = this.#statedView
    const ends = this.#ends
    const next = this.#nextView
    let nextLength = this.#next.write(`${seqField}${this.seq + 1}`, 'latin1')
    let at = from
    for (let line = 0; line < lines; line++) {
      const canonical = at + canonicalOffset
      const end = ends[line]!
      if (bytes[end - 1] !== brace || !isStart(view, at) || !isMiddle(view, at + middleAt)) return line

      // After `details` every field is a plain value, so the last match can only be the entry's own field;
      // quotes within a string are escaped.
      const link = lastLinkField(view, canonical, end) + linkField.length
      if (!isBefore(link, before, beforeLength, view, canonical)) return line
      if (link + checksumSize >= end || bytes[link + checksumSize] !== quote) return line
      let follows = true
      const named = line * checksumSize
      for (let n = 0; n < checksumSize; n += 8) {
        if (view.getFloat64(link + n, true) !== stated.getFloat64(named + n, true)) follows = false
        stated.setFloat64(named + checksumSize + n, view.getFloat64(at + checksumOffset + n, true), true)
      }
      if (!follows) return line

      // The number comes right before the time, which is also the last match of its field.
      const time = lastTimeField(view, link, end)
      if (!isBefore(time, next, nextLength, view, link)) return line
      nextLength = incrementDecimal(this.#next, nextLength)
      at = end + 1
    }
    return lines
  }

  /** The checksums of the lines from `from`. */
  #hashLines({ buffer, byteOffset }: Buffer, from: number, lines: number): string {
    const ends = this.#ends
    let checksums = ''
    let at = from
    for (let line = 0; line < lines; line++) {
      const end = ends[line]!
      const canonical = at + canonicalOffset
      checksums += checksumOf(new Uint8Array(buffer, byteOffset + canonical, end - 1 - canonical))
      at = end + 1
    }
    return checksums
  }

  /** Moves past the sound lines of a batch; returns where the next line begins. */
  #advance(bytes: Buffer, from: number, count: number, checksums: string): number {
    let at = from
    for (let line = 0; line < count; line++) {
      const end = this.#ends[line]!
      if (this.forest) pushLeaf(this.forest, this.seq + line, bytes, at + canonicalOffset, end - 1)
      at = end + 1
    }
    for (const seq of this.#watch) {
      const watched = seq - this.seq - 1
      if (watched >= 0 && watched < count) this.seen.set(seq, checksumIn(checksums, watched))
    }
    if (count > 0) this.link = checksumIn(checksums, count - 1)
    this.seq += count
    this.entries += count
    return at
  }
}

function viewOf({ buffer, byteOffset, length }: Buffer): DataView {
  return new DataView(buffer, byteOffset, length)
}

/*
 * Bytes are compared eight at a time, as numbers, which is the fastest way. Numbers made of text are equal only
 * when the bytes are. The bytes in place of a checksum need not be text; the hash comparison detects that.
 */

/** Matches a text of 8 to 16 bytes at an offset. */
function textMatcher(text: string): (view: DataView, at: number) => boolean {
  const bytes = Buffer.from(text)
  const last = bytes.length - 8
  const [first, second] = [bytes.readDoubleLE(0), bytes.readDoubleLE(last)]
  return (view, at) => view.getFloat64(at, true) === first && view.getFloat64(at + last, true) === second
}

/** Whether a text of at least eight bytes ends right before an offset and does not start before `from`. */
function isBefore(place: number, text: DataView, length: number, view: DataView, from: number): boolean {
  const at = place - length
  if (at < from) return false
  const last = length - 8
  for (let n = 0; n < last; n += 8) {
    if (text.getFloat64(n, true) !== view.getFloat64(at + n, true)) return false
  }
  return text.getFloat64(last, true) === view.getFloat64(at + last, true)
}

/**
 * Finds the last occurrence of a text between two offsets; -1 when there is none. Each step looks at two bytes
 * and is as long as the text has two-byte positions, so it hits the text wherever it is. No pair of bytes may
 * occur twice in the text.
 */
function lastMatchFinder(text: string): (view: DataView, from: number, end: number) => number {
  const bytes = Buffer.from(text)
  const { length } = bytes
  const isHere = textMatcher(text)
  const step = length - 1
  /** Offset of each pair of bytes in the text. */
  const offsets = new Uint8Array(1 << 16).fill(noOffset)
  for (let offset = 0; offset < step; offset++) offsets[bytes.readUInt16LE(offset)] = offset
  return (view, from, end) => {
    for (let at = end - 2; at >= from; at -= step) {
      const offset = offsets[view.getUint16(at, true)]!
      if (offset === noOffset) continue
      const start = at - offset
      if (start >= from && start + length <= end && isHere(view, start)) return start
    }
    return -1
  }
}

/** Adds one to the decimal number at the end of a text of this length; returns the new length. */
function incrementDecimal(text: Buffer, length: number): number {
  let digit = length - 1
  while (text[digit] === zero + 9) text[digit--] = zero
  if (text[digit] !== colon) {
    text[digit]!++
    return length
  }
  text[digit + 1] = zero + 1
  text[length] = zero
  return length + 1
}

/** Overwrites the byte before the text with the leaf's 0x00 for a moment, so that nothing is copied for hashing. */
function pushLeaf(forest: Forest, leaf: number, bytes: Buffer, from: number, end: number): void {
  bytes[from - 1] = 0
  forest.push(leaf, 1, hash('sha256', bytes.subarray(from - 1, end), 'binary'))
  bytes[from - 1] = colon
}

function checksumIn(checksums: string, index: number): string {
  return checksums.slice(index * checksumSize, (index + 1) * checksumSize)
}

/** How many leading checksums two texts have in common. */
function commonChecksums(a: string, b: string): number {
  if (a === b) return a.length / checksumSize
  let count = 0
  while (checksumIn(a, count) === checksumIn(b, count)) count++
  return count
}
