import { hash } from 'node:crypto'
import canonicalizeJson from 'canonicalize'

/**
 * The arithmetic of the audit chain: pure, so that a server seals with it and an auditor verifies with it.
 * An entry's checksum is SHA-256 over its canonical text (RFC 8785, every recorded field, prevChecksum
 * included); prevChecksum is the checksum of the entry before it in the same chain.
 */

/** prevChecksum of the first entry. */
export const genesis = '0'.repeat(64)

/** Every recorded field of an entry. */
export type ChainEntry = {
  id: string
  /** null in the system chain. */
  orgId: string | null
  /** From 1, without gaps. */
  seq: number
  timestamp: string
  actorType: 'user' | 'api_key' | 'agent' | 'system'
  actorId: string
  actorEmail: string | null
  action: string
  resourceType: string
  resourceId: string | null
  resourceName: string | null
  details: Record<string, unknown>
  ipAddress: string | null
  userAgent: string | null
  result: 'success' | 'failure' | 'denied'
  errorMessage: string | null
  prevChecksum: string
}

/** RFC 8785 text of an entry. */
export function canonicalText(entry: ChainEntry): string {
  const text = canonicalizeJson(entry)
  if (text === undefined) throw new TypeError('an audit entry must be JSON')
  return text
}

export const checksumOf = (canonical: string | Uint8Array): string => hash('sha256', canonical, 'hex')

/*
 * A chain as a file (NDJSON): a header line, a line for each entry, oldest first, and a trailer line that
 * says where the chain ended, so that a cut file is noticed. The canonical text stands in its line byte for
 * byte, so it is hashed as it was read.
 */
export const format = 'svc-audit-chain/1'

/** What stands for the entries that retention has removed: a signed anchor, and the tree over them. */
export type AnchorPart = {
  note: string
  /** Roots of the perfect trees that the removed leaves are made of, largest first, in base64. */
  tree: string[]
}

export type Header = {
  orgId: string | null
  anchor?: AnchorPart | undefined
  /** Notes in which one key of the service names the next, oldest first. */
  keys?: string[] | undefined
}

export const headerLine = (orgId: string | null, more: Omit<Header, 'orgId'> = {}): string =>
  `${JSON.stringify({ format, orgId, anchor: more.anchor, keys: more.keys?.length ? more.keys : undefined })}\n`

const entryStart = '{"checksum":"'
const entryMiddle = '","entry":'

export const entryLine = (checksum: string, canonical: string): string =>
  `${entryStart}${checksum}${entryMiddle}${canonical}}\n`

/** `checkpoint`: a signed note about this head. */
export const trailerLine = (head: Head, checkpoint?: string): string =>
  `${JSON.stringify({ head, checkpoint })}\n`

export type Head = { seq: number; checksum: string }

export type FaultKind =
  | 'altered'
  | 'missing'
  | 'reordered'
  | 'relinked'
  | 'foreign'
  | 'truncated'
  | 'unreadable'

export type ChainFault = {
  kind: FaultKind
  message: string
  seq: number
  /** The entry that does not fit, as far as it can be read. */
  entry?: { id?: string; action?: string; timestamp?: string }
}

export type Verdict =
  | { verdict: 'sound'; orgId: string | null; entries: number; head: Head }
  | { verdict: 'tampered'; orgId: string | null; entries: number; fault: ChainFault }
  | { verdict: 'unverifiable'; orgId: string | null; entries: number; fault: ChainFault }

/** What an anchor says, before its signatures. */
const anchorShape = /^svc\/audit\/(\S+)\n([1-9]\d{0,15})\n\S+\nhead ([0-9a-f]{64})\ntime \S+\npruned\n\n/

const newline = 0x0a
const quote = 0x22
const checksumAt = entryStart.length
// Without their first quote: a rarer letter is found faster.
const linkField = 'prevChecksum":"'
const seqField = 'seq":'
const canonicalAt = checksumAt + 64 + entryMiddle.length

/**
 * Recomputes a chain from the bytes of its file, in constant memory. Feed it chunks of any size; it stops
 * at the first fault.
 */
export class ChainVerifier {
  /** Entries found sound so far. */
  entries = 0
  /** Entries that an anchor stands for. */
  #removed = 0
  #orgId: string | null | undefined
  /** What stands before the link in every entry. */
  #before = ''
  #link = genesis
  #nextLink = -1
  #rest: Buffer = Buffer.alloc(0)
  #trailer: Head | undefined
  #stop: Verdict | undefined

  /** The verdict when a fault was met, else undefined: go on. */
  push(chunk: Buffer): Verdict | undefined {
    if (this.#stop) return this.#stop
    let from = 0
    if (this.#rest.length > 0) {
      // Only the line that goes from one chunk to the next is put together.
      const end = chunk.indexOf(newline)
      const joined = Buffer.concat([this.#rest, end === -1 ? chunk : chunk.subarray(0, end)])
      if (end === -1) {
        this.#rest = joined
        return undefined
      }
      this.#nextLink = -1
      this.#stop = this.#line(joined, joined.toString('latin1'), 0, joined.length)
      from = end + 1
    }
    this.#nextLink = -1
    // One character for each byte: searching a string is several times faster than searching many buffers.
    const text = chunk.toString('latin1')
    while (!this.#stop) {
      const end = text.indexOf('\n', from)
      if (end === -1) break
      this.#stop = this.#line(chunk, text, from, end)
      from = end + 1
    }
    // A copy: whoever reads may use the memory again.
    this.#rest = Buffer.from(chunk.subarray(from))
    return this.#stop
  }

  end(): Verdict {
    // Only a trailer may miss its line end; half a line says that the file was cut there.
    if (!this.#stop && parse(this.#rest)?.head !== undefined) {
      this.#nextLink = -1
      this.#stop = this.#line(this.#rest, this.#rest.toString('latin1'), 0, this.#rest.length)
    }
    if (this.#stop) return this.#stop
    const head = { seq: this.#removed + this.entries, checksum: this.#link }
    if (this.#orgId === undefined) return this.#cannotTell('The file is empty')
    if (!this.#trailer) return this.#cannotTell('The file ends before the chain does: export it again')
    if (this.#trailer.seq !== head.seq || this.#trailer.checksum !== head.checksum) {
      const message = `Entries after ${head.seq} are missing: the chain went on to ${this.#trailer.seq}`
      return this.#fault('truncated', message)
    }
    return { verdict: 'sound', orgId: this.#orgId, entries: this.entries, head }
  }

  /** The line from `from` to `end`, as bytes and as text. */
  #line(bytes: Buffer, text: string, from: number, end: number): Verdict | undefined {
    if (from === end) return undefined
    if (this.#orgId === undefined) return this.#header(bytes.subarray(from, end))
    if (!text.startsWith(entryStart, from)) return this.#end(bytes.subarray(from, end))
    if (this.#trailer) return this.#fault('reordered', 'An entry follows the end of the chain')

    const canonicalFrom = from + canonicalAt
    const canonical = bytes.subarray(canonicalFrom, end - 1)
    const stated = text.slice(from + checksumAt, from + checksumAt + 64)
    const framed = text.startsWith(entryMiddle, from + checksumAt + 64) && text[end - 1] === '}'
    if (!framed || checksumOf(canonical) !== stated) return this.#altered(canonical)

    // Past `details` every field is a plain value, so the last match can only be the entry's own field; what a
    // string holds has its quotes escaped. Forward, because that is several times faster than backward.
    const linkAt = this.#lastLink(text, canonicalFrom, end)
    const seqAt = text.indexOf(seqField, linkAt)
    const seq = String(this.#removed + this.entries + 1)
    const fits =
      seqAt < end &&
      linkAt - this.#before.length > canonicalFrom &&
      text.startsWith(this.#before, linkAt - this.#before.length) &&
      text.startsWith(this.#link, linkAt + linkField.length) &&
      text.charCodeAt(linkAt + linkField.length + 64) === quote &&
      text.charCodeAt(seqAt - 1) === quote &&
      text.startsWith(seq, seqAt + seqField.length) &&
      text.startsWith(',"timestamp":"', seqAt + seqField.length + seq.length)
    if (!fits) return this.#misplaced(canonical)
    this.#link = stated
    this.entries += 1
    return undefined
  }

  /** Where the last link of a line stands; where the next one begins is kept, so that a text is searched once. */
  #lastLink(text: string, from: number, end: number): number {
    let last = -1
    let next = this.#nextLink < from ? text.indexOf(linkField, from) : this.#nextLink
    while (next !== -1 && next < end) {
      last = next
      next = text.indexOf(linkField, next + 1)
    }
    this.#nextLink = next
    return last
  }

  #header(line: Buffer): Verdict | undefined {
    const header = parse(line)
    if (header?.format !== format) return this.#cannotTell(`This is not an audit chain (${format})`)
    this.#orgId = typeof header.orgId === 'string' ? header.orgId : null
    const { note } = (header.anchor ?? {}) as { note?: string }
    if (note !== undefined) {
      const [, chain, seq, checksum] = anchorShape.exec(String(note)) ?? []
      if (seq === undefined || checksum === undefined || chain !== (this.#orgId ?? 'system')) {
        return this.#cannotTell('Its anchor is not one of this chain')
      }
      this.#removed = Number(seq)
      this.#link = checksum
    }
    this.#before = `"orgId":${JSON.stringify(this.#orgId)},"`
    return undefined
  }

  #end(line: Buffer): Verdict | undefined {
    const head = parse(line)?.head as Head | undefined
    if (typeof head?.seq !== 'number' || typeof head.checksum !== 'string') {
      return this.#fault('unreadable', `The line after entry ${this.entries} is neither an entry nor the end`)
    }
    this.#trailer = { seq: head.seq, checksum: head.checksum }
    return undefined
  }

  #altered(canonical: Buffer): Verdict {
    const message = `Entry ${this.entries + 1} was altered: its checksum does not match its text`
    return this.#fault('altered', message, parse(canonical))
  }

  /** The entry is whole, but does not belong after the one before it: say what is wrong with the order. */
  #misplaced(canonical: Buffer): Verdict {
    const entry = parse(canonical)
    const wanted = this.#removed + this.entries + 1
    const seq = entry?.seq
    if (entry?.orgId !== this.#orgId)
      return this.#fault('foreign', `Entry ${wanted} belongs to another chain`, entry)
    if (typeof seq === 'number' && seq > wanted) {
      const gap = seq === wanted + 1 ? `Entry ${wanted} is` : `Entries ${wanted} to ${seq - 1} are`
      return this.#fault('missing', `${gap} missing`, entry)
    }
    if (seq !== wanted)
      return this.#fault('reordered', `Entry ${String(seq)} stands where ${wanted} belongs`, entry)
    return this.#fault('relinked', `Entry ${wanted} does not link to the one before it`, entry)
  }

  #fault(kind: FaultKind, message: string, entry: Record<string, unknown> = {}): Verdict {
    const named = ['id', 'action', 'timestamp'].filter((field) => typeof entry[field] === 'string')
    const shown = Object.fromEntries(named.map((field) => [field, entry[field]]))
    const fault = { kind, message, seq: this.entries + 1, ...(named.length > 0 && { entry: shown }) }
    return { verdict: 'tampered', orgId: this.#orgId ?? null, entries: this.entries, fault }
  }

  #cannotTell(message: string): Verdict {
    const fault = { kind: 'unreadable' as const, message, seq: this.entries + 1 }
    return { verdict: 'unverifiable', orgId: this.#orgId ?? null, entries: this.entries, fault }
  }
}

function parse(bytes: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}
