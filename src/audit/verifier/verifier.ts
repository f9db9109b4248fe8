import { type ChainHead, type ChainHeader, chainFormat, genesisChecksum } from '../chain.ts'
import { emptyRoot } from '../checkpoints/merkle-tree.ts'
import type { OpenedRestore } from '../checkpoints/restored.ts'
import { ChainScanner, type ScanStart } from './chain-scanner.ts'
import { Forest } from './forest.ts'
import { type ChainLine, readHeader, readLine, readTrailer } from './lines.ts'
import { MismatchClassifier } from './mismatch.ts'
import { checkPin, type Pin } from './pins.ts'
import { isOfChain, openRestores, reportOf } from './restores.ts'
import {
  checkCheckpoint,
  compareHeads,
  expandTrustedKeys,
  type OpenedAnchor,
  openAnchor,
  type SignedCheckpoint,
} from './signatures.ts'
import type { ChainFault, CheckpointState, Verdict, VerifierFinding } from './verdict.ts'

export type VerifierOptions = {
  /** Keys of the service that the verifier has from elsewhere. */
  keys?: readonly Buffer[] | undefined
  /** The verifier's pin of a chain. */
  pinOf?: ((orgId: string | null) => Pin | undefined) | undefined
  /** Recompute the tree as well. */
  tree?: boolean | undefined
}

/** A run of entries that a thread found linked in itself. */
export type LinkedRun = {
  entries: number
  /** The entry that its first entry links to. */
  before: ChainHead
  head: ChainHead
  seen: [seq: number, checksum: string][]
  trees: Forest['trees']
}

const newline = 0x0a
/** Far longer than any line of a chain. */
const maxLineBytes = 32 << 20

/**
 * Recomputes a chain from the bytes of its file, in constant memory. Feed it chunks of any size; it stops
 * at the first fault.
 */
export class ChainVerifier {
  readonly #options: VerifierOptions
  #header: ChainHeader | undefined
  #keys: Buffer[] | undefined
  #anchor: OpenedAnchor | undefined
  #pin: Pin | undefined
  #restores: readonly OpenedRestore[] = []
  #scanner: ChainScanner | undefined
  #mismatch: MismatchClassifier | undefined
  #trailer: (ChainLine & { is: 'trailer' }) | undefined
  #buffered: Buffer[] = []
  #bufferedLength = 0
  #verdict: Verdict | undefined

  constructor(trust: VerifierOptions = {}) {
    this.#options = trust
  }

  /** Entries found sound so far. */
  get entries(): number {
    return this.#scanner?.entries ?? 0
  }

  /** Where the scan begins, once the header is read. */
  get start(): ScanStart | undefined {
    return this.#scanner && this.#startOf(this.#header!, this.#anchor)
  }

  /** The verdict when a fault was found, else undefined: go on. */
  push(chunk: Buffer): Verdict | undefined {
    if (this.#verdict) return this.#verdict
    let from = 0
    if (this.#bufferedLength > 0) {
      // Only the line that spans two chunks is put together.
      from = chunk.indexOf(newline) + 1
      this.#buffer(from === 0 ? chunk : chunk.subarray(0, from))
      if (from === 0) return this.#verdict
      this.#lines(this.#takeBuffered())
    }
    const end = this.#lines(chunk, from)
    if (!this.#verdict) this.#buffer(chunk.subarray(end))
    return this.#verdict
  }

  /** Appends a run of entries; false when it does not follow from the entries before. */
  append({ before, entries, head, seen, trees }: LinkedRun): boolean {
    const scanner = this.#scanner
    if (
      !scanner ||
      this.#mismatch ||
      this.#trailer ||
      before.seq !== scanner.seq ||
      before.checksum !== scanner.link
    )
      return false
    scanner.entries += entries
    scanner.seq = head.seq
    scanner.link = head.checksum
    for (const [watched, checksum] of seen) scanner.seen.set(watched, checksum)
    for (const { from, size, hash } of trees) scanner.forest?.push(from, size, hash)
    return true
  }

  end(): Verdict {
    // Only a trailer may lack its line end; any other partial line means that the file was truncated.
    const rest = this.#takeBuffered()
    if (!this.#verdict && this.#scanner && !this.#mismatch && readTrailer(rest)) this.#line(rest)
    if (this.#verdict) return this.#verdict
    if (!this.#scanner) return this.#toVerdict(this.#unverifiable('The file is empty'))
    if (this.#mismatch) return this.#toVerdict(this.#mismatch.finding)
    if (!this.#trailer || (rest.length > 0 && !readTrailer(rest)))
      return this.#toVerdict(this.#unverifiable('The file ends before the chain does: export it again'))
    return this.#conclude(this.#scanner, this.#trailer)
  }

  /** Processes the whole lines from `from`; returns where the first partial line begins. */
  #lines(bytes: Buffer, from = 0): number {
    let at = from
    while (!this.#verdict) {
      if (this.#scanner && !this.#mismatch && !this.#trailer) at = this.#scanner.scan(bytes, at)
      const end = bytes.indexOf(newline, at)
      if (end === -1) break
      this.#line(bytes.subarray(at, end))
      at = end + 1
    }
    return at
  }

  /** Processes a line that is not the next entry. */
  #line(line: Buffer): void {
    if (!this.#scanner) this.#begin(line)
    else if (this.#mismatch) this.#mismatch.read(line)
    else if (this.#trailer) {
      this.#fail({ kind: 'inserted', message: 'A line follows the end of the chain' })
    } else {
      const read = readLine(line)
      if (read.is === 'trailer') this.#trailer = read
      else this.#mismatch = new MismatchClassifier(read, this.#expected(this.#scanner))
    }
    if (this.#mismatch?.isSettled) this.#fail(this.#mismatch.finding)
  }

  #begin(line: Buffer): void {
    const header = readHeader(line)
    if (!header) {
      this.#fail(this.#unverifiable(`This is not an audit chain (${chainFormat})`))
      return
    }
    this.#header = header
    this.#pin = this.#options.pinOf?.(header.orgId)
    const pinned = this.#pin?.key ? [Buffer.from(this.#pin.key, 'base64')] : undefined
    const trusted = expandTrustedKeys(this.#options.keys ?? pinned, header.keys ?? [])
    if (trusted.finding) {
      this.#fail(trusted.finding)
      return
    }
    this.#keys = trusted.keys
    const restores = openRestores(header.restores ?? [], header.orgId, trusted.keys)
    if (restores.finding) {
      this.#fail(restores.finding)
      return
    }
    this.#restores = restores.restores
    if (header.anchor) {
      const anchor = openAnchor(header.anchor, header.orgId, trusted.keys)
      if (anchor.finding) {
        this.#fail(anchor.finding)
        return
      }
      this.#anchor = anchor
    }
    this.#scanner = new ChainScanner(this.#startOf(header, this.#anchor))
  }

  #startOf({ orgId }: ChainHeader, anchor: OpenedAnchor | undefined): ScanStart {
    return {
      orgId,
      head: anchor?.checkpoint.head ?? { seq: 0, checksum: genesisChecksum },
      forest: this.#options.tree ? (anchor?.forest ?? new Forest()) : undefined,
      watch: [
        ...(this.#pin ? [this.#pin.seq] : []),
        ...this.#restores.map(({ restored }) => restored.head.seq),
      ],
    }
  }

  #expected({ seq, link }: ChainScanner) {
    return {
      orgId: this.#header!.orgId,
      seq: seq + 1,
      link,
      isFirst: seq === 0 && !this.#anchor,
    }
  }

  #conclude(scanner: ChainScanner, { head: stated, checkpoint }: ChainLine & { is: 'trailer' }): Verdict {
    const head = { seq: scanner.seq, checksum: scanner.link }
    const { orgId, keys = [] } = this.#header!
    const finding = compareHeads('its last line', stated, head)
    if (finding) return this.#toVerdict(finding)
    const root = scanner.forest?.root(emptyRoot)
    const judged = checkCheckpoint(checkpoint, { orgId, head, root }, this.#keys)
    if (judged.finding) return this.#toVerdict(judged.finding)
    const { signed } = judged
    const anchor = this.#anchor
    const restores = this.#restores.filter(({ restored }) =>
      isOfChain(restored, scanner.seen, anchor?.checkpoint),
    )
    const seen = this.#pin && scanner.seen.get(this.#pin.seq)
    const pin = checkPin(this.#pin, { head, anchor, signed, seen, successions: keys, restores })
    if ('kind' in pin) return this.#toVerdict(pin)
    const unverified = anchor?.unverified ?? judged.unverified
    if (unverified) return this.#toVerdict(unverified)
    return {
      verdict: 'sound',
      orgId,
      entries: scanner.entries,
      head,
      anchor: anchor?.checkpoint.head ?? null,
      checkpoint: checkpointState(signed),
      root: root?.toString('base64') ?? null,
      pin: pin.state,
      restores: restores.map((one) => reportOf(one, pin.state === 'restored' ? this.#pin : undefined)),
    }
  }

  #buffer(bytes: Buffer): void {
    if (bytes.length === 0) return
    // A copy, since the caller may reuse the memory.
    this.#buffered.push(Buffer.from(bytes))
    this.#bufferedLength += bytes.length
    if (this.#bufferedLength > maxLineBytes)
      this.#fail(this.#unverifiable('It has a line that is too long for an audit chain'))
  }

  #takeBuffered(): Buffer {
    const taken = Buffer.concat(this.#buffered)
    this.#buffered = []
    this.#bufferedLength = 0
    return taken
  }

  #unverifiable(message: string): VerifierFinding {
    return { kind: 'unreadable', message, unverifiable: true }
  }

  #fail(finding: VerifierFinding): void {
    this.#verdict ??= this.#toVerdict(finding)
  }

  #toVerdict({ kind, message, seq, unverifiable = false }: VerifierFinding): Verdict {
    const entry = this.#mismatch?.entry ?? {}
    const named = ['id', 'action', 'timestamp'].filter((field) => typeof entry[field] === 'string')
    const readable = Object.fromEntries(named.map((field) => [field, entry[field]]))
    const fault: ChainFault = {
      kind,
      message,
      seq: seq ?? (this.#scanner?.seq ?? 0) + 1,
      ...(named.length > 0 && { entry: readable }),
    }
    const orgId = this.#header?.orgId ?? null
    return { verdict: unverifiable ? 'unverifiable' : 'tampered', orgId, entries: this.entries, fault }
  }
}

function checkpointState(signed: SignedCheckpoint | undefined): CheckpointState {
  if (!signed) return { state: 'none' }
  const { time, root } = signed.checkpoint
  const fields = { time, root: root.toString('base64') }
  return signed.key
    ? { state: 'signed', ...fields, key: signed.key.toString('base64') }
    : { state: 'unchecked', ...fields }
}
