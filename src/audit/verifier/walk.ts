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
const beforeLink = Buffer.from('"prev')
const behindLink = Buffer.from('Checksum":"')
const seqLetter = 'q'.charCodeAt(0)
const beforeSeq = Buffer.from('"se')
const behindSeq = Buffer.from('q":')
const timeField = Buffer.from(',"timestamp":"')
const start = Buffer.from(entryStart)
const middle = Buffer.from(entryMiddle)

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
  readonly #before: Buffer
  /** Where the link stands in the bytes at hand; -1 when it came from elsewhere. */
  #linkAt = -1
  #nextLetter = -1

  constructor({ orgId, head, forest, watch = -1 }: Place) {
    this.seq = head.seq
    this.link = head.checksum
    this.forest = forest
    this.#watch = watch
    this.#before = Buffer.from(`"orgId":${JSON.stringify(orgId)},`)
  }

  /**
   * Goes over whole lines from `from`. Where it stands then: behind the last whole line, or before a line that is
   * not the next entry. It makes no strings and searches nothing twice: hashing takes most of its time.
   */
  lines(bytes: Buffer, from: number): number {
    this.#nextLetter = -1
    let at = from
    for (let end = bytes.indexOf(newline, at); end !== -1; end = bytes.indexOf(newline, at)) {
      if (!this.#entry(bytes, at, end)) break
      at = end + 1
    }
    if (this.#linkAt !== -1) this.link = bytes.toString('latin1', this.#linkAt, this.#linkAt + 64)
    this.#linkAt = -1
    return at
  }

  #entry(bytes: Buffer, from: number, end: number): boolean {
    const canonicalFrom = from + canonicalAt
    if (bytes[end - 1] !== brace || !stands(start, bytes, from) || !stands(middle, bytes, from + middleAt))
      return false
    const checksum = checksumOf(bytes.subarray(canonicalFrom, end - 1))
    if (!reads(checksum, bytes, from + checksumAt)) return false

    // Past `details` every field is a plain value, so the last match can only be the entry's own field; what a
    // string holds has its quotes escaped.
    const before = this.#lastLink(bytes, canonicalFrom, end) - beforeLink.length
    const link = before + beforeLink.length + behindLink.length
    const fits =
      before - this.#before.length > canonicalFrom &&
      stands(this.#before, bytes, before - this.#before.length) &&
      this.#follows(bytes, link) &&
      bytes[link + 64] === quote &&
      isNext(bytes, link + 64, end, this.seq + 1)
    if (!fits) return false
    if (this.forest) this.#grow(this.forest, bytes, canonicalFrom, end - 1)
    this.#linkAt = from + checksumAt
    this.seq += 1
    this.entries += 1
    if (this.seq === this.#watch) this.seen = checksum
    return true
  }

  /** Whether the link at a place is the checksum of the entry before. */
  #follows(bytes: Buffer, link: number): boolean {
    if (this.#linkAt === -1) return reads(this.link, bytes, link)
    for (let n = 0; n < 64; n++) if (bytes[link + n] !== bytes[this.#linkAt + n]) return false
    return true
  }

  /** The byte before the text is lent to the leaf's 0x00, so that nothing is copied to be hashed. */
  #grow(forest: Forest, bytes: Buffer, from: number, end: number): void {
    bytes[from - 1] = 0
    forest.push(this.seq, 1, hash('sha256', bytes.subarray(from - 1, end), 'binary'))
    bytes[from - 1] = colon
  }

  /** Where the last link field of a line has its letter; where the next letter is stays known for the next line. */
  #lastLink(bytes: Buffer, from: number, end: number): number {
    let last = -1
    let next = this.#nextLetter < from ? bytes.indexOf(linkLetter, from) : this.#nextLetter
    while (next !== -1 && next < end) {
      if (stands(behindLink, bytes, next) && stands(beforeLink, bytes, next - beforeLink.length)) last = next
      next = bytes.indexOf(linkLetter, next + 1)
    }
    // Past the end, so that what is not there is not searched again.
    this.#nextLetter = next === -1 ? bytes.length : next
    return last
  }
}

/** For a few bytes this is faster than any call. */
function stands(what: Buffer, bytes: Buffer, at: number): boolean {
  for (let n = 0; n < what.length; n++) if (bytes[at + n] !== what[n]) return false
  return true
}

function reads(text: string, bytes: Buffer, at: number): boolean {
  for (let n = 0; n < text.length; n++) if (bytes[at + n] !== text.charCodeAt(n)) return false
  return true
}

/** Whether the first `seq` behind a place is this one, written as a whole number. */
function isNext(bytes: Buffer, from: number, end: number, seq: number): boolean {
  let at = bytes.indexOf(seqLetter, from)
  while (at !== -1 && at < end && !stands(behindSeq, bytes, at)) at = bytes.indexOf(seqLetter, at + 1)
  if (at === -1 || at >= end || !stands(beforeSeq, bytes, at - beforeSeq.length)) return false
  const first = at + behindSeq.length
  let digit = first
  let value = 0
  for (let byte = bytes[digit]!; byte >= zero && byte <= zero + 9; byte = bytes[++digit]!) {
    value = value * 10 + byte - zero
  }
  return value === seq && bytes[first] !== zero && stands(timeField, bytes, digit)
}
