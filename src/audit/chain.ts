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

export const headerLine = (orgId: string | null): string => `${JSON.stringify({ format, orgId })}\n`

const entryStart = '{"checksum":"'
const entryMiddle = '","entry":'

export const entryLine = (checksum: string, canonical: string): string =>
  `${entryStart}${checksum}${entryMiddle}${canonical}}\n`

export const trailerLine = (head: Head): string => `${JSON.stringify({ head })}\n`

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

const newline = 0x0a
const brace = 0x7d
const checksumAt = entryStart.length
const canonicalAt = checksumAt + 64 + entryMiddle.length

/**
 * Recomputes a chain from the bytes of its file, in constant memory. Feed it chunks of any size; it stops
 * at the first fault.
 */
export class ChainVerifier {
  /** Entries found sound so far. */
  entries = 0
  #orgId: string | null | undefined
  #link = genesis
  #rest: Buffer = Buffer.alloc(0)
  #trailer: Head | undefined
  #stop: Verdict | undefined

  /** The verdict when a fault was met, else undefined: go on. */
  push(chunk: Buffer): Verdict | undefined {
    if (this.#stop) return this.#stop
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    let from = 0
    for (let end = bytes.indexOf(newline); end !== -1; end = bytes.indexOf(newline, from)) {
      this.#stop = this.#line(bytes.subarray(from, end))
      if (this.#stop) return this.#stop
      from = end + 1
    }
    this.#rest = bytes.subarray(from)
    return undefined
  }

  end(): Verdict {
    // Only a trailer may miss its line end; half a line says that the file was cut there.
    if (!this.#stop && parse(this.#rest)?.head !== undefined) this.#stop = this.#line(this.#rest)
    if (this.#stop) return this.#stop
    const head = { seq: this.entries, checksum: this.#link }
    if (this.#orgId === undefined) return this.#cannotTell('The file is empty')
    if (!this.#trailer) return this.#cannotTell('The file ends before the chain does: export it again')
    if (this.#trailer.seq !== head.seq || this.#trailer.checksum !== head.checksum) {
      const message = `Entries after ${head.seq} are missing: the chain went on to ${this.#trailer.seq}`
      return this.#fault('truncated', message)
    }
    return { verdict: 'sound', orgId: this.#orgId, entries: this.entries, head }
  }

  #line(line: Buffer): Verdict | undefined {
    if (line.length === 0) return undefined
    if (this.#orgId === undefined) return this.#header(line)
    if (line.toString('latin1', 0, checksumAt) !== entryStart) return this.#end(line)
    if (this.#trailer) return this.#fault('reordered', 'An entry follows the end of the chain')

    const canonical = line.subarray(canonicalAt, line.length - 1)
    const stated = line.toString('latin1', checksumAt, checksumAt + 64)
    const framed =
      line.toString('latin1', checksumAt + 64, canonicalAt) === entryMiddle && line.at(-1) === brace
    if (!framed || checksumOf(canonical) !== stated) return this.#altered(canonical)

    // Past `details` every field is a plain value, so the last match can only be the entry's own field.
    const org = this.#orgId === null ? 'null' : `"${this.#orgId}"`
    const linkAt = canonical.lastIndexOf('"prevChecksum":"')
    const expected = `"orgId":${org},"prevChecksum":"${this.#link}",`
    const start = linkAt - `"orgId":${org},`.length
    const fits = linkAt !== -1 && canonical.toString('latin1', start, start + expected.length) === expected
    const seq = `"seq":${this.entries + 1},"timestamp":"`
    if (!fits || canonical.indexOf(seq, linkAt) === -1) return this.#misplaced(canonical)
    this.#link = stated
    this.entries += 1
    return undefined
  }

  #header(line: Buffer): Verdict | undefined {
    const header = parse(line)
    if (header?.format !== format) return this.#cannotTell(`This is not an audit chain (${format})`)
    this.#orgId = typeof header.orgId === 'string' ? header.orgId : null
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
    const wanted = this.entries + 1
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
