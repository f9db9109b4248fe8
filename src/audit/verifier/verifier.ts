import { format, genesis, type Head, type Header } from '../chain.ts'
import { emptyRoot } from '../checkpoints/tree.ts'
import { Doubt } from './doubt.ts'
import { Forest } from './forest.ts'
import { type Line, readHeader, readLine, readTrailer } from './lines.ts'
import { judgePin, type Pin } from './pins.ts'
import { type Anchored, against, judgeCheckpoint, openAnchor, type Signed, withSuccessions } from './trust.ts'
import type { ChainFault, CheckpointState, Finding, Verdict } from './verdict.ts'
import { type Place, Walk } from './walk.ts'

export type Trust = {
  /** Keys of the service that whoever verifies has from elsewhere. */
  keys?: readonly Buffer[] | undefined
  /** What they have seen of a chain before. */
  pinOf?: ((orgId: string | null) => Pin | undefined) | undefined
  /** Recompute the tree as well. */
  tree?: boolean | undefined
}

/** A run of entries that was found to be linked in itself, elsewhere. */
export type Run = {
  entries: number
  /** What its first entry names as the one before. */
  before: Head
  head: Head
  seen: string | undefined
  trees: Forest['trees']
}

const newline = 0x0a
/** No line of a chain comes near. */
const longestLine = 32 << 20

/**
 * Recomputes a chain from the bytes of its file, in constant memory. Feed it chunks of any size; it stops
 * at the first fault.
 */
export class ChainVerifier {
  readonly #trust: Trust
  #header: Header | undefined
  #keys: Buffer[] | undefined
  #anchor: Anchored | undefined
  #pin: Pin | undefined
  #walk: Walk | undefined
  #doubt: Doubt | undefined
  #trailer: (Line & { is: 'trailer' }) | undefined
  #rest: Buffer[] = []
  #restLength = 0
  #stop: Verdict | undefined

  constructor(trust: Trust = {}) {
    this.#trust = trust
  }

  /** Entries found sound so far. */
  get entries(): number {
    return this.#walk?.entries ?? 0
  }

  /** Where the walk begins, once the header is read. */
  get place(): Place | undefined {
    return this.#walk && this.#placeOf(this.#header!, this.#anchor)
  }

  /** The verdict when a fault was met, else undefined: go on. */
  push(chunk: Buffer): Verdict | undefined {
    if (this.#stop) return this.#stop
    let from = 0
    if (this.#restLength > 0) {
      // Only the line that goes from one chunk to the next is put together.
      from = chunk.indexOf(newline) + 1
      this.#keep(from === 0 ? chunk : chunk.subarray(0, from))
      if (from === 0) return this.#stop
      this.#lines(this.#taken())
    }
    const whole = this.#lines(chunk, from)
    if (!this.#stop) this.#keep(chunk.subarray(whole))
    return this.#stop
  }

  /** Goes on behind a run of entries; false when it does not follow from what was before. */
  follow({ before, entries, head, seen, trees }: Run): boolean {
    const walk = this.#walk
    if (!walk || this.#doubt || this.#trailer || before.seq !== walk.seq || before.checksum !== walk.link)
      return false
    walk.entries += entries
    walk.seq = head.seq
    walk.link = head.checksum
    walk.seen ??= seen
    for (const { from, size, hash } of trees) walk.forest?.push(from, size, hash)
    return true
  }

  end(): Verdict {
    // Only a trailer may miss its line end; half a line says that the file was cut there.
    const rest = this.#taken()
    if (!this.#stop && this.#walk && !this.#doubt && readTrailer(rest)) this.#line(rest)
    if (this.#stop) return this.#stop
    if (!this.#walk) return this.#found(this.#cannotTell('The file is empty'))
    if (this.#doubt) return this.#found(this.#doubt.finding)
    if (!this.#trailer || (rest.length > 0 && !readTrailer(rest)))
      return this.#found(this.#cannotTell('The file ends before the chain does: export it again'))
    return this.#conclude(this.#walk, this.#trailer)
  }

  /** Takes the whole lines from `from`; where the first begins that is not whole. */
  #lines(bytes: Buffer, from = 0): number {
    let at = from
    while (!this.#stop) {
      if (this.#walk && !this.#doubt && !this.#trailer) at = this.#walk.lines(bytes, at)
      const end = bytes.indexOf(newline, at)
      if (end === -1) break
      this.#line(bytes.subarray(at, end))
      at = end + 1
    }
    return at
  }

  /** A line that is not the next entry. */
  #line(line: Buffer): void {
    if (!this.#walk) this.#begin(line)
    else if (this.#doubt) this.#doubt.read(line)
    else if (this.#trailer) {
      this.#fail({ kind: 'inserted', message: 'A line follows the end of the chain' })
    } else {
      const read = readLine(line)
      if (read.is === 'trailer') this.#trailer = read
      else this.#doubt = new Doubt(read, this.#expected(this.#walk))
    }
    if (this.#doubt?.isSettled) this.#fail(this.#doubt.finding)
  }

  #begin(line: Buffer): void {
    const header = readHeader(line)
    if (!header) {
      this.#fail(this.#cannotTell(`This is not an audit chain (${format})`))
      return
    }
    this.#header = header
    this.#pin = this.#trust.pinOf?.(header.orgId)
    const pinned = this.#pin?.key ? [Buffer.from(this.#pin.key, 'base64')] : undefined
    const trusted = withSuccessions(this.#trust.keys ?? pinned, header.keys ?? [])
    if (trusted.finding) {
      this.#fail(trusted.finding)
      return
    }
    this.#keys = trusted.keys
    if (header.anchor) {
      const anchor = openAnchor(header.anchor, header.orgId, trusted.keys)
      if (anchor.finding) {
        this.#fail(anchor.finding)
        return
      }
      this.#anchor = anchor
    }
    this.#walk = new Walk(this.#placeOf(header, this.#anchor))
  }

  #placeOf({ orgId }: Header, anchor: Anchored | undefined): Place {
    return {
      orgId,
      head: anchor?.checkpoint.head ?? { seq: 0, checksum: genesis },
      forest: this.#trust.tree ? (anchor?.forest ?? new Forest()) : undefined,
      watch: this.#pin?.seq,
    }
  }

  #expected({ seq, link }: Walk) {
    return {
      orgId: this.#header!.orgId,
      seq: seq + 1,
      link,
      isFirst: seq === 0 && !this.#anchor,
    }
  }

  #conclude(walk: Walk, { head: said, checkpoint }: Line & { is: 'trailer' }): Verdict {
    const head = { seq: walk.seq, checksum: walk.link }
    const { orgId, keys = [] } = this.#header!
    const finding = against('its last line', said, head)
    if (finding) return this.#found(finding)
    const root = walk.forest?.root(emptyRoot)
    const judged = judgeCheckpoint(checkpoint, { orgId, head, root }, this.#keys)
    if (judged.finding) return this.#found(judged.finding)
    const { signed } = judged
    const anchor = this.#anchor
    const pin = judgePin(this.#pin, { head, anchor, signed, seen: walk.seen, successions: keys })
    if ('kind' in pin) return this.#found(pin)
    return {
      verdict: 'sound',
      orgId,
      entries: walk.entries,
      head,
      anchor: anchor?.checkpoint.head ?? null,
      checkpoint: stateOf(signed),
      root: root?.toString('base64') ?? null,
      pin: pin.state,
    }
  }

  #keep(bytes: Buffer): void {
    if (bytes.length === 0) return
    // A copy: whoever reads may use the memory again.
    this.#rest.push(Buffer.from(bytes))
    this.#restLength += bytes.length
    if (this.#restLength > longestLine)
      this.#fail(this.#cannotTell('It has a line that is too long for an audit chain'))
  }

  #taken(): Buffer {
    const taken = Buffer.concat(this.#rest)
    this.#rest = []
    this.#restLength = 0
    return taken
  }

  #cannotTell(message: string): Finding {
    return { kind: 'unreadable', message, unverifiable: true }
  }

  #fail(finding: Finding): void {
    this.#stop ??= this.#found(finding)
  }

  #found({ kind, message, seq, unverifiable = false }: Finding): Verdict {
    const entry = this.#doubt?.entry ?? {}
    const named = ['id', 'action', 'timestamp'].filter((field) => typeof entry[field] === 'string')
    const shown = Object.fromEntries(named.map((field) => [field, entry[field]]))
    const fault: ChainFault = {
      kind,
      message,
      seq: seq ?? (this.#walk?.seq ?? 0) + 1,
      ...(named.length > 0 && { entry: shown }),
    }
    const orgId = this.#header?.orgId ?? null
    return { verdict: unverifiable ? 'unverifiable' : 'tampered', orgId, entries: this.entries, fault }
  }
}

function stateOf(signed: Signed | undefined): CheckpointState {
  if (!signed) return { state: 'none' }
  const { time, root } = signed.checkpoint
  const told = { time, root: root.toString('base64') }
  return signed.key
    ? { state: 'signed', ...told, key: signed.key.toString('base64') }
    : { state: 'unchecked', ...told }
}
