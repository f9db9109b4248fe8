import { hash } from 'node:crypto'
import { checksumOf, entryMiddle, entryStart, type Head } from '../chain.ts'
import type { Forest } from './forest.ts'

const checksumAt = entryStart.length
const middleAt = checksumAt + 64
export const canonicalAt = middleAt + entryMiddle.length

// Without their first quote: a rarer letter is found faster.
const linkField = 'prevChecksum":"'
const seqField = 'seq":'
const brace = 0x7d
const quote = 0x22
const colon = 0x3a

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
  readonly #before: string
  #nextLink = -1

  constructor({ orgId, head, forest, watch = -1 }: Place) {
    this.seq = head.seq
    this.link = head.checksum
    this.forest = forest
    this.#watch = watch
    this.#before = `"orgId":${JSON.stringify(orgId)},"`
  }

  /**
   * Goes over whole lines from `from`, `text` being the same bytes as latin1: one character for each byte,
   * because searching a string is several times faster than searching many buffers. Where it stands then: behind
   * the last whole line, or before a line that is not the next entry.
   */
  lines(bytes: Buffer, text: string, from: number): number {
    this.#nextLink = -1
    let at = from
    for (let end = text.indexOf('\n', at); end !== -1; end = text.indexOf('\n', at)) {
      if (!this.#entry(bytes, text, at, end)) return at
      at = end + 1
    }
    return at
  }

  #entry(bytes: Buffer, text: string, from: number, end: number): boolean {
    const canonicalFrom = from + canonicalAt
    if (!text.startsWith(entryStart, from) || !text.startsWith(entryMiddle, from + middleAt)) return false
    const stated = text.slice(from + checksumAt, from + middleAt)
    const canonical = bytes.subarray(canonicalFrom, end - 1)
    if (text.charCodeAt(end - 1) !== brace || checksumOf(canonical) !== stated) return false

    // Past `details` every field is a plain value, so the last match can only be the entry's own field; what a
    // string holds has its quotes escaped. Forward, because that is several times faster than backward.
    const linkAt = this.#lastLink(text, canonicalFrom, end)
    const seqAt = text.indexOf(seqField, linkAt + linkField.length + 64)
    const seq = String(this.seq + 1)
    const fits =
      seqAt < end &&
      linkAt - this.#before.length > canonicalFrom &&
      text.startsWith(this.#before, linkAt - this.#before.length) &&
      text.startsWith(this.link, linkAt + linkField.length) &&
      text.charCodeAt(linkAt + linkField.length + 64) === quote &&
      text.charCodeAt(seqAt - 1) === quote &&
      text.startsWith(seq, seqAt + seqField.length) &&
      text.startsWith(',"timestamp":"', seqAt + seqField.length + seq.length)
    if (!fits) return false
    if (this.forest) this.#grow(this.forest, bytes, canonicalFrom, end - 1)
    this.link = stated
    this.seq += 1
    this.entries += 1
    if (this.seq === this.#watch) this.seen = stated
    return true
  }

  /** The byte before the text is lent to the leaf's 0x00, so that nothing is copied to be hashed. */
  #grow(forest: Forest, bytes: Buffer, from: number, end: number): void {
    bytes[from - 1] = 0
    forest.push({ from: this.seq, size: 1, hash: hash('sha256', bytes.subarray(from - 1, end), 'buffer') })
    bytes[from - 1] = colon
  }

  /** Where the last link of a line stands; where the next one begins is kept, so that a text is searched once. */
  #lastLink(text: string, from: number, end: number): number {
    let last = -1
    let next = this.#nextLink < from ? text.indexOf(linkField, from) : this.#nextLink
    while (next !== -1 && next < end) {
      last = next
      next = text.indexOf(linkField, next + 1)
    }
    // Past the end of the text, so that it is not searched again for what is not there.
    this.#nextLink = next === -1 ? text.length : next
    return last
  }
}
