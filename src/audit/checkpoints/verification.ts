import { systemScope } from '../../core/scope.ts'
import { type Instant, secondsBetween } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { canonicalOffset, checksumOffset, entryPrefix, headerLine, trailerLine } from '../chain.ts'
import { sealPendingFor } from '../outbox.ts'
import { type Anchor, findAnchor, toHeaderAnchor } from '../retention/anchors.ts'
import { withReadLease } from '../retention/read-leases.ts'
import { findUnrecordedChange } from '../retention/recorded-policy.ts'
import { orgOf } from '../rules.ts'
import { chainLines } from '../store.ts'
import { ChainVerifier } from '../verifier/verifier.ts'
import { type Checkpoint, openCheckpoint } from './checkpoint.ts'
import { HistoryChangedError } from './history-changed.ts'
import { type CheckpointDependencies, takeCheckpoint } from './jobs.ts'
import { Frontier, leafHash } from './merkle-tree.ts'
import { findPostdated } from './postdated.ts'
import { findLastCheckpoint, leavesOfTile, tileWidth } from './store.ts'
import {
  claimVerification,
  type DueChain,
  listDueChains,
  type StoredVerdict,
  saveVerdict,
} from './verdicts.ts'

/** What this process knows by itself: whoever holds the database cannot change it. */
export class VerificationState {
  /** Chains it last found not sound, and when. */
  readonly faults = new Map<string, { verdict: StoredVerdict['verdict']; at: Instant }>()
  /** Since when it knows that chains are to be verified, those it has known longest first. */
  readonly waiting = new Map<string, Instant>()
  /** Since when it could not claim some of them. */
  readonly unclaimed = new Map<string, Instant>()

  recordVerdict({ chain, verdict }: Pick<StoredVerdict, 'chain' | 'verdict'>, at: Instant): void {
    if (verdict === 'sound') this.faults.delete(chain)
    else this.faults.set(chain, { verdict, at })
  }

  /**
   * Some chains in the order in which they became due, by what this process saw of it: whoever has others come before one,
   * again and again, has them come behind it. `due`: all that are, for a beginning longest unverified first.
   */
  orderByWaiting(due: readonly DueChain[], now: Instant): DueChain[] {
    const byName = new Map(due.map((one) => [one.chain, one]))
    for (const known of [this.waiting, this.unclaimed])
      for (const chain of known.keys()) if (!byName.has(chain)) known.delete(chain)
    for (const { chain } of due) if (!this.waiting.has(chain)) this.waiting.set(chain, now)
    return [...this.waiting.keys()].map((chain) => byName.get(chain)!)
  }
}

export type VerificationDependencies = CheckpointDependencies & {
  memory: VerificationState
  /** Told of every verdict. */
  onVerdict(verdict: StoredVerdict): void
}

type Fault = NonNullable<StoredVerdict['fault']>

const hour = 3600

/**
 * Verifies chains whose turn it is, each once a day by one of the processes; and those that this one found not sound
 * again by itself, whatever the database says of them now.
 */
export async function verifyDue(parts: VerificationDependencies): Promise<void> {
  const { storage, signer, localCopies, memory, clock } = parts
  const now = clock()
  const isLong = (since: Instant | undefined) => since !== undefined && secondsBetween(since, now) >= hour
  const { due, few } = await listDueChains(storage.read, { kept: await localCopies.list(), signer, now })
  const failures: unknown[] = []
  const verify = async (chain: string, seen?: DueChain) => {
    memory.waiting.delete(chain)
    try {
      await verifyStoredChain(parts, chain, seen?.seen?.checked_at)
    } catch (error) {
      failures.push(error)
    }
  }
  // One that cannot be claimed is another process's, which is done in an hour; or somebody lets nobody have it.
  const isFree = ({ chain }: DueChain) => !memory.unclaimed.has(chain) || isLong(memory.unclaimed.get(chain))
  for (const one of memory.orderByWaiting(due, now).filter(isFree).slice(0, few)) {
    const { chain } = one
    const isMine =
      isLong(memory.unclaimed.get(chain)) ||
      (await storage
        .write((tx) => claimVerification(tx, signer, one, now))
        .catch((error: unknown) => {
          failures.push(error)
          return false
        }))
    if (isMine) {
      memory.unclaimed.delete(chain)
      await verify(chain, one)
    } else memory.unclaimed.set(chain, now)
  }
  for (const [chain, { at }] of [...memory.faults]) if (isLong(at)) await verify(chain)
  if (failures.length > 0) throw failures[0]
}

/** Told before it is written: whoever keeps it from being written keeps nobody from knowing. */
async function publishVerdict(
  { storage, signer, memory, clock, onVerdict }: VerificationDependencies,
  verdict: StoredVerdict,
): Promise<void> {
  memory.recordVerdict(verdict, clock())
  onVerdict(verdict)
  await storage.write((tx) => saveVerdict(tx, signer, verdict, clock()))
}

/**
 * Recomputes a chain from its entries, in constant memory: that they fit each other, the tree and everything
 * that was signed of them, and that no time beside it is yet to come. `checkedAt`: of the verdict before. What
 * cannot be verified is told, and keeps no other chain from its verdict.
 */
export async function verifyStoredChain(
  parts: VerificationDependencies,
  chain: string,
  checkedAt?: Instant,
): Promise<StoredVerdict> {
  const verdict = await verifyAll(parts, chain, checkedAt).catch((error: Error): StoredVerdict => {
    const fault = { kind: 'unreadable', message: `It could not be verified: ${error.message}`, seq: 0 }
    return { chain, verdict: 'unverifiable', fault, entries: 0 }
  })
  await publishVerdict(parts, verdict)
  return verdict
}

async function verifyAll(
  parts: VerificationDependencies,
  chain: string,
  checkedAt: Instant | undefined,
): Promise<StoredVerdict> {
  const { storage, localCopies, clock } = parts
  const notes = [(await findLastCheckpoint(storage.read, chain))?.note, await localCopies.read(chain)]
  const signed = notes.flatMap((note) => {
    const it = note === undefined ? undefined : openCheckpoint(note, [])
    return it && it.state !== 'unreadable' ? [it.checkpoint] : []
  })
  await sealPendingFor(storage, systemScope, chain)
  // Before anything is signed anew, which puts a later time in its place.
  const postdated = await findPostdated(storage.read, chain, { signed, checkedAt }, clock())
  let refusal: HistoryChangedError | undefined
  let upTo: Checkpoint | undefined
  try {
    upTo = (await takeCheckpoint(parts, chain)).checkpoint
  } catch (error) {
    if (!(error instanceof HistoryChangedError)) throw error
    refusal = error
  }
  const walk = new TreeComparer(storage.heavy, chain, upTo ? [...signed, upTo] : signed)
  const verifier = new ChainVerifier()
  const found = await scanStoredChain(parts, chain, upTo?.head, verifier, walk)
  const change = refusal?.change
  const refused = change && { kind: change.kind, message: change.why, seq: change.found }
  const fault = found ?? refused ?? postdated ?? (await unrecordedFault(storage, chain))
  const { entries } = verifier
  return fault ? { chain, verdict: 'tampered', fault, entries } : { chain, verdict: 'sound', entries }
}

/** The first fault of the anchor and the entries behind it up to a head; without one, of all there are. */
async function scanStoredChain(
  { storage, clock, signer }: VerificationDependencies,
  chain: string,
  head: Checkpoint['head'] | undefined,
  verifier: ChainVerifier,
  walk: TreeComparer,
): Promise<Fault | undefined> {
  let forged = false
  const lines = withReadLease(storage, chain, clock, async function* () {
    const anchor = await findAnchor(storage.read, systemScope, chain)
    forged = !isSigned(anchor, await signer.trusted())
    yield forged ? headerLine(orgOf(chain)) : await walk.begin(anchor)
    yield* chainLines(storage.heavy, systemScope, chain, head?.seq ?? Number.MAX_SAFE_INTEGER)
  })
  for await (const some of lines) {
    if (forged) return unanchored
    const stop = verifier.push(Buffer.from(some))
    if (stop) return 'fault' in stop ? stop.fault : undefined
    const fault = await walk.add(some)
    // What is wrong with the entries themselves says more than that they are not those of the tree.
    if (fault) return verifierFault(verifier) ?? fault
  }
  if (head) verifier.push(Buffer.from(trailerLine(head)))
  return verifierFault(verifier)
}

/** Chains of the database end without a trailer where nothing could be signed of them; that alone is no fault. */
function verifierFault(verifier: ChainVerifier): Fault | undefined {
  const verdict = verifier.end()
  return verdict.verdict === 'tampered' ? verdict.fault : undefined
}

/** Whether the service itself signed that the chain begins there. */
function isSigned({ head, tree, signed }: Anchor, publicKeys: readonly Buffer[]): boolean {
  if (signed === null) return true
  const it = openCheckpoint(signed.note, publicKeys)
  if (it.state !== 'signed' || it.checkpoint.kind !== 'anchor') return false
  const { head: told, root } = it.checkpoint
  return (
    told.seq === head.seq && told.checksum === head.checksum && tree !== undefined && root.equals(tree.root())
  )
}

async function unrecordedFault(
  storage: VerificationDependencies['storage'],
  chain: string,
): Promise<Fault | undefined> {
  const message = await findUnrecordedChange(storage, chain)
  return message === undefined ? undefined : { kind: 'rewritten', message, seq: 0 }
}

const unanchored: Fault = {
  kind: 'rewritten',
  message: 'The anchor of the chain is not one that the service signed',
  seq: 1,
}

/** Grows a tree from the lines of a chain, beside the one that is stored and those that were signed. */
class TreeComparer {
  readonly #db: Db
  readonly #chain: string
  readonly #signed: readonly Checkpoint[]
  #tree = new Frontier()
  /** Of the tile that is not whole yet. */
  #leaves: Buffer[] = []

  constructor(db: Db, chain: string, signed: readonly Checkpoint[]) {
    this.#db = db
    this.#chain = chain
    this.#signed = signed
  }

  /** Begins behind what was removed, with the header of the chain. */
  async begin(anchor: Anchor): Promise<string> {
    const { size, roots } = anchor.tree!
    this.#tree = new Frontier(size, roots)
    const first = size - (size % tileWidth)
    const stored = await leavesOfTile(this.#db, this.#chain, first / tileWidth)
    this.#leaves = stored.slice(0, size - first)
    return headerLine(orgOf(this.#chain), { anchor: toHeaderAnchor(anchor) })
  }

  async add(lines: string): Promise<Fault | undefined> {
    for (const line of lines.split('\n')) {
      if (!line.startsWith(entryPrefix)) continue
      const fault = await this.#leaf(line)
      if (fault) return fault
    }
    return undefined
  }

  async #leaf(line: string): Promise<Fault | undefined> {
    const leaf = leafHash(line.slice(canonicalOffset, -1))
    this.#tree.push(leaf)
    this.#leaves.push(leaf)
    const { size } = this.#tree
    for (const { head, root } of this.#signed) {
      if (head.seq !== size) continue
      if (
        line.slice(checksumOffset, checksumOffset + 64) !== head.checksum ||
        !this.#tree.root().equals(root)
      )
        return rewritten(size)
      // The tree as it is stored goes at least as far as what was signed.
      const fault = await this.#compare()
      if (fault) return fault
    }
    return size % tileWidth === 0 ? this.#compare() : undefined
  }

  /** Leaves since the last tile that was compared whole, with those of their tile. */
  async #compare(): Promise<Fault | undefined> {
    const { size } = this.#tree
    const first = size - this.#leaves.length
    const stored = await leavesOfTile(this.#db, this.#chain, first / tileWidth)
    // Entries that nothing is signed of yet need not be in the tree.
    const known = stored.slice(0, this.#leaves.length)
    if (known.some((leaf, n) => !leaf.equals(this.#leaves[n]!))) return rewritten(size)
    if (size % tileWidth === 0) this.#leaves = []
    return undefined
  }
}

const rewritten = (seq: number): Fault => ({
  kind: 'rewritten',
  message: `The entries up to ${seq} are not those that were signed`,
  seq,
})
