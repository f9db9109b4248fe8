import { hash } from 'node:crypto'
import { canonicalAt, checksumAt, entryMiddle, entryStart, type Head } from '../chain.ts'
import type { Forest } from './forest.ts'

const checksumSize = 64
const middleAt = checksumAt + checksumSize

const newline = 0x0a
const brace = 0x7d
const quote = 0x22
const colon = 0x3a
const zero = 0x30
const linkField = '"prevChecksum":"'
/** Rare among what stands behind the link, so that the link is looked for by it. */
const linkLetter = 'C'.charCodeAt(0)
const linkLetterAt = linkField.indexOf('C')
/** With the end of the result, which stands before it: of eight bytes. */
const seqField = '","seq":'
const timeField = ',"timestamp":"'

const isStart = standing(entryStart)
const isMiddle = standing(entryMiddle)
const isLinkField = standing(linkField)
const isSeqField = standing(seqField)
const isTimeField = standing(timeField)

/** Farther from the end of a line than anything in it. */
const far = 2 ** 30

/** Of a checksum as text. That its length is said spares a look at the name of the algorithm, each time. */
const asText = { outputEncoding: 'hex', outputLength: 32 } as const

/** Lines whose checksums are compared at once. */
const batch = 64

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
  readonly #before: DataView
  /** What the lines of a batch say their checksums are, behind the one that the first has to name as its link. */
  readonly #said = Buffer.alloc(checksumSize * (batch + 1))
  readonly #saidView = viewOf(this.#said)
  /** Where the lines of a batch end. */
  readonly #ends = new Int32Array(batch)
  /** How far before its end the last line had its `seq`: the next one often has, too. */
  #seqBack = far

  constructor({ orgId, head, forest, watch = -1 }: Place) {
    this.seq = head.seq
    this.link = head.checksum
    this.forest = forest
    this.#watch = watch
    this.#before = viewOf(Buffer.from(`"orgId":${JSON.stringify(orgId)},${linkField}`))
  }

  /**
   * Goes over whole lines from `from`. Where it stands then: behind the last whole line, or before a line that is
   * not the next entry.
   */
  lines(bytes: Buffer, from: number): number {
    if (this.link.length !== checksumSize) return from
    const view = viewOf(bytes)
    for (let at = from; ; ) {
      this.#said.write(this.link, 0, checksumSize, 'latin1')
      const checksums = this.#linked(bytes, view, at)
      const said = this.#said.toString('latin1', checksumSize, checksumSize + checksums.length)
      const count = commonChecksums(checksums, said)
      at = this.#pass(bytes, at, count, checksums)
      if (count < batch) return at
    }
  }

  /**
   * The checksums of the lines from `from`, a batch at most, as far as each names what the one before says of itself
   * and has the next number. Hashing is to take nearly all of the time: so everything else is done here, in place,
   * with next to no calls and no strings but the checksums.
   */
  #linked(bytes: Buffer, view: DataView, from: number): string {
    const { buffer, byteOffset } = bytes
    const before = this.#before
    const beforeLength = before.byteLength
    const said = this.#saidView
    const ends = this.#ends
    let seqBack = this.#seqBack
    let next = this.seq + 1
    let checksums = ''
    let at = from
    for (let line = 0; line < batch; line++) {
      const canonical = at + canonicalAt
      // No line ends before its text: all of what stands there is compared.
      const end = bytes.indexOf(newline, canonical)
      if (end === -1 || bytes[end - 1] !== brace) break
      if (!isStart(view, at) || !isMiddle(view, at + middleAt)) break

      const link = lastLink(bytes, view, canonical, end)
      if (!isBefore(link, before, beforeLength, view, canonical)) break
      if (bytes[link + checksumSize] !== quote) break
      let follows = true
      const named = line * checksumSize
      for (let n = 0; n < checksumSize; n += 8) {
        if (view.getFloat64(link + n, true) !== said.getFloat64(named + n, true)) follows = false
        said.setFloat64(named + checksumSize + n, view.getFloat64(at + checksumAt + n, true), true)
      }
      if (!follows) break

      // Behind the link there is one `seq`. It is a whole number, without a zero before it.
      let seq = end - seqBack
      if (seq <= link || !isSeqField(view, seq)) {
        seq = bytes.indexOf(seqField, link, 'latin1')
        if (seq === -1 || seq >= end) break
        seqBack = end - seq
      }
      const first = seq + seqField.length
      let behind = first
      let value = 0
      for (let byte = bytes[behind]!; byte >= zero && byte <= zero + 9; byte = bytes[++behind]!) {
        value = value * 10 + byte - zero
      }
      if (value !== next || bytes[first] === zero) break
      if (behind + timeField.length > end || !isTimeField(view, behind)) break

      const text = new Uint8Array(buffer, byteOffset + canonical, end - 1 - canonical)
      checksums += hash('sha256', text, asText)
      ends[line] = end
      next++
      at = end + 1
    }
    this.#seqBack = seqBack
    return checksums
  }

  /** Goes past the lines of a batch that are sound; where the next one begins. */
  #pass(bytes: Buffer, from: number, count: number, checksums: string): number {
    let at = from
    for (let line = 0; line < count; line++) {
      const end = this.#ends[line]!
      if (this.forest) grow(this.forest, this.seq + line, bytes, at + canonicalAt, end - 1)
      at = end + 1
    }
    const watched = this.#watch - this.seq - 1
    if (watched >= 0 && watched < count) this.seen = checksumIn(checksums, watched)
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
 * Bytes are compared eight at a time, as numbers, which is the fastest way there is. Numbers made of text are the
 * same only when the bytes are. What is said in place of a checksum may be no text; that is told by the hash.
 */

/** Tells whether a text, of 8 to 16 bytes, stands at a place. */
function standing(text: string): (view: DataView, at: number) => boolean {
  const bytes = Buffer.from(text)
  const last = bytes.length - 8
  const [first, second] = [bytes.readDoubleLE(0), bytes.readDoubleLE(last)]
  return (view, at) => view.getFloat64(at, true) === first && view.getFloat64(at + last, true) === second
}

/** Whether a text, of eight bytes and more, stands right before a place, and not before `from`. */
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
 * Where the link of a line begins; -1 without one. Past `details` every field is a plain value, so the last match can
 * only be the entry's own field; what a string holds has its quotes escaped.
 */
function lastLink(bytes: Buffer, view: DataView, from: number, end: number): number {
  let letter = bytes.lastIndexOf(linkLetter, end)
  while (letter - linkLetterAt >= from && !isLinkField(view, letter - linkLetterAt)) {
    letter = bytes.lastIndexOf(linkLetter, letter - 1)
  }
  const at = letter - linkLetterAt
  const link = at + linkField.length
  return at >= from && link + checksumSize < end ? link : -1
}

/** The byte before the text is lent to the leaf's 0x00, so that nothing is copied to be hashed. */
function grow(forest: Forest, leaf: number, bytes: Buffer, from: number, end: number): void {
  bytes[from - 1] = 0
  forest.push(leaf, 1, hash('sha256', bytes.subarray(from - 1, end), 'binary'))
  bytes[from - 1] = colon
}

function checksumIn(checksums: string, index: number): string {
  return checksums.slice(index * checksumSize, (index + 1) * checksumSize)
}

/** How many checksums two texts have in common at their beginning. */
function commonChecksums(a: string, b: string): number {
  if (a === b) return a.length / checksumSize
  let count = 0
  while (checksumIn(a, count) === checksumIn(b, count)) count++
  return count
}
