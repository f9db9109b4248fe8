import { hash } from 'node:crypto'
import { canonicalAt, checksumAt, checksumOf, entryMiddle, entryStart, type Head } from '../chain.ts'
import type { Forest } from './forest.ts'

const middleAt = checksumAt + 64

const newline = 0x0a
const brace = 0x7d
const quote = 0x22
const colon = 0x3a
const zero = 0x30
// A field is looked for by a letter that is rare, and then compared.
const linkLetter = 'C'.charCodeAt(0)
const seqLetter = 'q'.charCodeAt(0)

/** A text to compare bytes with, four at a time: for so few bytes that is faster than any call. */
class Text {
  readonly length: number
  readonly #last: number
  readonly #words: Int32Array

  /** Of four bytes and more. */
  constructor(text: string) {
    const bytes = Buffer.from(text)
    this.length = bytes.length
    this.#words = Int32Array.from({ length: bytes.length >> 2 }, (_, word) => bytes.readInt32LE(word * 4))
    this.#last = bytes.readInt32LE(bytes.length - 4)
  }

  standsAt(at: number, bytes: DataView): boolean {
    if (at < 0 || at + this.length > bytes.byteLength) return false
    const words = this.#words
    for (let word = 0; word < words.length; word++) {
      if (bytes.getInt32(at + word * 4, true) !== words[word]) return false
    }
    return bytes.getInt32(at + this.length - 4, true) === this.#last
  }
}

const start = new Text(entryStart)
const middle = new Text(entryMiddle)
const linkField = new Text('"prevChecksum":"')
const linkLetterAt = '"prev'.length
const seqField = new Text('"seq":')
const seqLetterAt = '"se'.length
const timeField = new Text(',"timestamp":"')

export type Place = {
  orgId: string | null
  /** The entry before. */
  head: Head
  /** Grows by every entry, when the tree is wanted. */
  forest?: Forest | undefined
  /** The checksum of this entry is kept. */
  watch?: number | undefined
}

/** Goes along a chain, entry by entry, as long as each follows from the one before. */
export class Walk {
  entries = 0
  seq: number
  link: string
  /** The checksum of the entry watched for, once it was met. */
  seen: string | undefined
  readonly forest: Forest | undefined
  readonly #watch: number
  /** What stands before the link in every entry. */
  readonly #before: Text
  /** Where the link stands in the bytes at hand; -1 when it came from elsewhere. */
  #linkAt = -1
  #nextLetter = -1
  /** How far before its end the last line had its `seq`: where the next one has it as well, most of the time. */
  #seqBack = 0

  constructor({ orgId, head, forest, watch = -1 }: Place) {
    this.seq = head.seq
    this.link = head.checksum
    this.forest = forest
    this.#watch = watch
    this.#before = new Text(`"orgId":${JSON.stringify(orgId)},`)
  }

  /**
   * Goes over whole lines from `from`. Where it stands then: behind the last whole line, or before a line that is
   * not the next entry. It makes no strings and searches nothing twice: hashing takes most of its time.
   */
  lines(bytes: Buffer, from: number): number {
    this.#nextLetter = -1
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
    let at = from
    for (let end = bytes.indexOf(newline, at); end !== -1; end = bytes.indexOf(newline, at)) {
      if (!this.#entry(bytes, view, at, end)) break
      at = end + 1
    }
    if (this.#linkAt !== -1) this.link = bytes.toString('latin1', this.#linkAt, this.#linkAt + 64)
    this.#linkAt = -1
    return at
  }

  #entry(bytes: Buffer, view: DataView, from: number, end: number): boolean {
    const canonicalFrom = from + canonicalAt
    if (bytes[end - 1] !== brace || !start.standsAt(from, view) || !middle.standsAt(from + middleAt, view))
      return false
    const checksum = checksumOf(bytes.subarray(canonicalFrom, end - 1))
    if (!reads(checksum, view, from + checksumAt)) return false

    // Past `details` every field is a plain value, so the last match can only be the entry's own field; what a
    // string holds has its quotes escaped.
    const field = this.#lastLink(bytes, view, canonicalFrom, end)
    const link = field + linkField.length
    const fits =
      field - this.#before.length > canonicalFrom &&
      this.#before.standsAt(field - this.#before.length, view) &&
      this.#follows(view, link) &&
      bytes[link + 64] === quote &&
      this.#isNext(bytes, view, link + 64, end)
    if (!fits) return false
    if (this.forest) this.#grow(this.forest, bytes, canonicalFrom, end - 1)
    this.#linkAt = from + checksumAt
    this.seq += 1
    this.entries += 1
    if (this.seq === this.#watch) this.seen = checksum
    return true
  }

  /** Whether the link at a place is the checksum of the entry before. */
  #follows(view: DataView, link: number): boolean {
    if (link + 64 > view.byteLength) return false
    return this.#linkAt === -1 ? reads(this.link, view, link) : isSame(view, this.#linkAt, view, link)
  }

  /** The byte before the text is lent to the leaf's 0x00, so that nothing is copied to be hashed. */
  #grow(forest: Forest, bytes: Buffer, from: number, end: number): void {
    bytes[from - 1] = 0
    forest.push(this.seq, 1, hash('sha256', bytes.subarray(from - 1, end), 'binary'))
    bytes[from - 1] = colon
  }

  /** Where the last link field of a line begins; where the next letter is stays known for the next line. */
  #lastLink(bytes: Buffer, view: DataView, from: number, end: number): number {
    let last = -1
    let next = this.#nextLetter < from ? bytes.indexOf(linkLetter, from) : this.#nextLetter
    while (next !== -1 && next < end) {
      if (linkField.standsAt(next - linkLetterAt, view)) last = next - linkLetterAt
      next = bytes.indexOf(linkLetter, next + 1)
    }
    // Past the end, so that what is not there is not searched again.
    this.#nextLetter = next === -1 ? bytes.length : next
    return last
  }

  /** Whether the `seq` behind a place, of which there is one, is the next, written as a whole number. */
  #isNext(bytes: Buffer, view: DataView, from: number, end: number): boolean {
    let at = end - this.#seqBack
    if (at < from || !seqField.standsAt(at, view)) at = seqBehind(bytes, view, from)
    if (at === -1 || at >= end) return false
    this.#seqBack = end - at
    const first = at + seqField.length
    let digit = first
    let value = 0
    for (let byte = bytes[digit]!; byte >= zero && byte <= zero + 9; byte = bytes[++digit]!) {
      value = value * 10 + byte - zero
    }
    return value === this.seq + 1 && bytes[first] !== zero && timeField.standsAt(digit, view)
  }
}

const written = Buffer.alloc(64)
const writtenView = new DataView(written.buffer, written.byteOffset, 64)

/** Whether a checksum stands at a place. To write and compare it is faster than to compare its letters. */
function reads(checksum: string, view: DataView, at: number): boolean {
  if (checksum.length !== 64) return false
  written.write(checksum, 0, 64, 'latin1')
  return isSame(writtenView, 0, view, at)
}

/** Where the first `seq` behind a place begins; -1 without one. */
function seqBehind(bytes: Buffer, view: DataView, from: number): number {
  let at = bytes.indexOf(seqLetter, from)
  while (at !== -1 && !seqField.standsAt(at - seqLetterAt, view)) at = bytes.indexOf(seqLetter, at + 1)
  return at === -1 ? -1 : at - seqLetterAt
}

/** Whether the 64 bytes at two places are the same. */
function isSame(a: DataView, atA: number, b: DataView, atB: number): boolean {
  for (let n = 0; n < 64; n += 4) {
    if (a.getInt32(atA + n, true) !== b.getInt32(atB + n, true)) return false
  }
  return true
}
