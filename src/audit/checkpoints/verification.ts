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

/** What this process knows by itself: an attacker with access to the database cannot change it. */
export class VerificationState {
  /** Chains that it last found not sound, and when. */
  readonly faults = new Map<string, { verdict: StoredVerdict['verdict']; at: Instant }>()
  /** When it first saw that a chain was due, longest waiting first. */
  readonly waiting = new Map<string, Instant>()
  /** When it first failed to claim a chain. */
  readonly unclaimed = new Map<string, Instant>()

  recordVerdict({ chain, verdict }: Pick<StoredVerdict, 'chain' | 'verdict'>, at: Instant): void {
    if (verdict === 'sound') this.faults.delete(chain)
    else this.faults.set(chain, { verdict, at })
  }

  /**
   * The due chains in the order in which this process first saw them due: an attacker who keeps making other
   * chains due puts them behind the waiting ones. `due` starts in the order longest unverified first.
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
  /** Called for every verdict. */
  onVerdict(verdict: StoredVerdict): void
}

type Fault = NonNullable<StoredVerdict['fault']>

const hour = 3600

/**
 * Verifies the due chains, each once a day by one of the processes, and again those that this process itself
 * found not sound, whatever the database says of them now.
 */
export async function verifyDue(deps: VerificationDependencies): Promise<void> {
  const { storage, signer, localCopies, memory, clock } = deps
  const now = clock()
  const isLong = (since: Instant | undefined) => since !== undefined && secondsBetween(since, now) >= hour
  const { due, few } = await listDueChains(storage.read, {
    localChains: await localCopies.list(),
    signer,
    now,
  })
  const failures: unknown[] = []
  const verify = async (chain: string, seen?: DueChain) => {
    memory.waiting.delete(chain)
    try {
      await verifyStoredChain(deps, chain, seen?.seen?.checked_at)
    } catch (error) {
      failures.push(error)
    }
  }
  // A chain that cannot be claimed is being verified by another process, which takes less than an hour; or an
  // attacker blocks the claim.
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

/** Reported before it is stored, so an attacker who blocks the write does not suppress the report. */
async function publishVerdict(
  { storage, signer, memory, clock, onVerdict }: VerificationDependencies,
  verdict: StoredVerdict,
): Promise<void> {
  memory.recordVerdict(verdict, clock())
  onVerdict(verdict)
  await storage.write((tx) => saveVerdict(tx, signer, verdict, clock()))
}

/**
 * Verifies a stored chain from its entries, in constant memory: the entries fit each other, the tree and
 * everything that was signed of them, and no time in its records lies in the future. `checkedAt` is the time of
 * the verdict before. A chain that cannot be verified is reported, and does not hold up another chain.
 */
export async function verifyStoredChain(
  deps: VerificationDependencies,
  chain: string,
  checkedAt?: Instant,
): Promise<StoredVerdict> {
  const verdict = await verifyAll(deps, chain, checkedAt).catch((error: Error): StoredVerdict => {
    const fault = { kind: 'unreadable', message: `It could not be verified: ${error.message}`, seq: 0 }
    return { chain, verdict: 'unverifiable', fault, entries: 0 }
  })
  await publishVerdict(deps, verdict)
  return verdict
}

async function verifyAll(
  deps: VerificationDependencies,
  chain: string,
  checkedAt: Instant | undefined,
): Promise<StoredVerdict> {
  const { storage, localCopies, clock } = deps
  const notes = [(await findLastCheckpoint(storage.read, chain))?.note, await localCopies.read(chain)]
  const signed = notes.flatMap((note) => {
    const it = note === undefined ? undefined : openCheckpoint(note, [])
    return it && it.state !== 'unreadable' ? [it.checkpoint] : []
  })
  await sealPendingFor(storage, systemScope, chain)
  // Before anything is signed anew, which would replace the time.
  const postdated = await findPostdated(storage.read, chain, { signed, checkedAt }, clock())
  let refusal: HistoryChangedError | undefined
  let upTo: Checkpoint | undefined
  try {
    upTo = (await takeCheckpoint(deps, chain)).checkpoint
  } catch (error) {
    if (!(error instanceof HistoryChangedError)) throw error
    refusal = error
  }
  const comparer = new TreeComparer(storage.heavy, chain, upTo ? [...signed, upTo] : signed)
  const verifier = new ChainVerifier()
  const found = await scanStoredChain(deps, chain, upTo?.head, verifier, comparer)
  const change = refusal?.change
  const refused = change && { kind: change.kind, message: change.why, seq: change.found }
  const fault = found ?? refused ?? postdated ?? (await unrecordedFault(storage, chain))
  const { entries } = verifier
  return fault ? { chain, verdict: 'tampered', fault, entries } : { chain, verdict: 'sound', entries }
}

/** The first fault of the anchor and of the entries after it, up to a head, or of all entries without one. */
async function scanStoredChain(
  { storage, clock, signer }: VerificationDependencies,
  chain: string,
  head: Checkpoint['head'] | undefined,
  verifier: ChainVerifier,
  comparer: TreeComparer,
): Promise<Fault | undefined> {
  let forged = false
  const lines = withReadLease(storage, chain, clock, async function* () {
    const anchor = await findAnchor(storage.read, systemScope, chain)
    forged = !isSigned(anchor, await signer.trusted())
    yield forged ? headerLine(orgOf(chain)) : await comparer.begin(anchor)
    yield* chainLines(storage.heavy, systemScope, chain, head?.seq ?? Number.MAX_SAFE_INTEGER)
  })
  for await (const some of lines) {
    if (forged) return unanchored
    const stop = verifier.push(Buffer.from(some))
    if (stop) return 'fault' in stop ? stop.fault : undefined
    const fault = await comparer.add(some)
    // A fault of the entries themselves says more than that they differ from the tree.
    if (fault) return verifierFault(verifier) ?? fault
  }
  if (head) verifier.push(Buffer.from(trailerLine(head)))
  return verifierFault(verifier)
}

/** A stored chain that could not be signed has no trailer; that alone is no fault. */
function verifierFault(verifier: ChainVerifier): Fault | undefined {
  const verdict = verifier.end()
  return verdict.verdict === 'tampered' ? verdict.fault : undefined
}

/** Whether the service itself signed this anchor. */
function isSigned({ head, tree, signed }: Anchor, publicKeys: readonly Buffer[]): boolean {
  if (signed === null) return true
  const it = openCheckpoint(signed.note, publicKeys)
  if (it.state !== 'signed' || it.checkpoint.kind !== 'anchor') return false
  const { head: signedHead, root } = it.checkpoint
  return (
    signedHead.seq === head.seq &&
    signedHead.checksum === head.checksum &&
    tree !== undefined &&
    root.equals(tree.root())
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

/** Builds a tree from the lines of a chain and compares it with the stored tree and the signed ones. */
class TreeComparer {
  readonly #db: Db
  readonly #chain: string
  readonly #signed: readonly Checkpoint[]
  #tree = new Frontier()
  /** Leaves of the tile that is not full yet. */
  #leaves: Buffer[] = []

  constructor(db: Db, chain: string, signed: readonly Checkpoint[]) {
    this.#db = db
    this.#chain = chain
    this.#signed = signed
  }

  /** Begins after the removed entries; returns the header of the chain. */
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
      // The stored tree covers at least what was signed.
      const fault = await this.#compare()
      if (fault) return fault
    }
    return size % tileWidth === 0 ? this.#compare() : undefined
  }

  /** Compares the leaves since the last full tile with the stored tile. */
  async #compare(): Promise<Fault | undefined> {
    const { size } = this.#tree
    const first = size - this.#leaves.length
    const stored = await leavesOfTile(this.#db, this.#chain, first / tileWidth)
    // Entries that are not signed yet need not be in the tree.
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
