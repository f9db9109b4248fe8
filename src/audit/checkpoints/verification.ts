import { systemScope } from '../../core/scope.ts'
import { type Instant, secondsBetween } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { canonicalAt, checksumAt, entryStart, headerLine, trailerLine } from '../chain.ts'
import { sealFor } from '../outbox.ts'
import { type Anchor, findAnchor, partOf } from '../retention/anchors.ts'
import { whileKept } from '../retention/readings.ts'
import { findUnrecorded } from '../retention/recorded.ts'
import { orgOf } from '../rules.ts'
import { chainLines } from '../store.ts'
import { ChainVerifier } from '../verifier/verifier.ts'
import { ChangedHistory } from './changed-history.ts'
import { type Checkpoint, openCheckpoint } from './checkpoint.ts'
import { type CheckpointParts, takeCheckpoint } from './jobs.ts'
import { findPostdated } from './postdated.ts'
import { lastCheckpoint, leavesOfTile, tileWidth } from './store.ts'
import { Frontier, leafHash } from './tree.ts'
import { claim, type Due, listDue, type StoredVerdict, saveVerdict } from './verdicts.ts'

/** What this process knows by itself: whoever holds the database cannot change it. */
export class Memory {
  /** Chains it last found not sound, and when. */
  readonly faults = new Map<string, { verdict: StoredVerdict['verdict']; at: Instant }>()
  /** Since when it knows that chains are to be verified, those it has known longest first. */
  readonly waiting = new Map<string, Instant>()
  /** Since when it could not claim some of them. */
  readonly unclaimed = new Map<string, Instant>()

  keep({ chain, verdict }: Pick<StoredVerdict, 'chain' | 'verdict'>, at: Instant): void {
    if (verdict === 'sound') this.faults.delete(chain)
    else this.faults.set(chain, { verdict, at })
  }

  /**
   * Some chains in the order in which they became due, by what this process saw of it: whoever has others come before one,
   * again and again, has them come behind it. `due`: all that are, for a beginning longest unverified first.
   */
  inTurn(due: readonly Due[], now: Instant): Due[] {
    const byName = new Map(due.map((one) => [one.chain, one]))
    for (const known of [this.waiting, this.unclaimed])
      for (const chain of known.keys()) if (!byName.has(chain)) known.delete(chain)
    for (const { chain } of due) if (!this.waiting.has(chain)) this.waiting.set(chain, now)
    return [...this.waiting.keys()].map((chain) => byName.get(chain)!)
  }
}

export type VerificationParts = CheckpointParts & {
  memory: Memory
  /** Told of every verdict. */
  onVerdict(verdict: StoredVerdict): void
}

type Fault = NonNullable<StoredVerdict['fault']>

const hour = 3600

/**
 * Verifies chains whose turn it is, each once a day by one of the processes; and those that this one found not sound
 * again by itself, whatever the database says of them now.
 */
export async function verifyDue(parts: VerificationParts): Promise<void> {
  const { storage, signer, kept, memory, clock } = parts
  const now = clock()
  const isLong = (since: Instant | undefined) => since !== undefined && secondsBetween(since, now) >= hour
  const { due, few } = await listDue(storage.read, { kept: await kept.list(), signer, now })
  const failures: unknown[] = []
  const verify = async (chain: string, seen?: Due) => {
    memory.waiting.delete(chain)
    try {
      await verifyStored(parts, chain, seen?.seen?.checked_at)
    } catch (error) {
      failures.push(error)
    }
  }
  // One that cannot be claimed is another process's, which is done in an hour; or somebody lets nobody have it.
  const isFree = ({ chain }: Due) => !memory.unclaimed.has(chain) || isLong(memory.unclaimed.get(chain))
  for (const one of memory.inTurn(due, now).filter(isFree).slice(0, few)) {
    const { chain } = one
    const isMine =
      isLong(memory.unclaimed.get(chain)) ||
      (await storage
        .write((tx) => claim(tx, signer, one, now))
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
async function conclude(
  { storage, signer, memory, clock, onVerdict }: VerificationParts,
  verdict: StoredVerdict,
): Promise<void> {
  memory.keep(verdict, clock())
  onVerdict(verdict)
  await storage.write((tx) => saveVerdict(tx, signer, verdict, clock()))
}

/**
 * Recomputes a chain from its entries, in constant memory: that they fit each other, the tree and everything
 * that was signed of them, and that no time beside it is yet to come. `checkedAt`: of the verdict before. What
 * cannot be verified is told, and keeps no other chain from its verdict.
 */
export async function verifyStored(
  parts: VerificationParts,
  chain: string,
  checkedAt?: Instant,
): Promise<StoredVerdict> {
  const verdict = await judged(parts, chain, checkedAt).catch((error: Error): StoredVerdict => {
    const fault = { kind: 'unreadable', message: `It could not be verified: ${error.message}`, seq: 0 }
    return { chain, verdict: 'unverifiable', fault, entries: 0 }
  })
  await conclude(parts, verdict)
  return verdict
}

async function judged(
  parts: VerificationParts,
  chain: string,
  checkedAt: Instant | undefined,
): Promise<StoredVerdict> {
  const { storage, kept, clock } = parts
  const notes = [(await lastCheckpoint(storage.read, chain))?.note, await kept.read(chain)]
  const signed = notes.flatMap((note) => {
    const it = note === undefined ? undefined : openCheckpoint(note, [])
    return it && it.state !== 'unreadable' ? [it.checkpoint] : []
  })
  await sealFor(storage, systemScope, chain)
  // Before anything is signed anew, which puts a later time in its place.
  const postdated = await findPostdated(storage.read, chain, { signed, checkedAt }, clock())
  let refusal: ChangedHistory | undefined
  let upTo: Checkpoint | undefined
  try {
    upTo = (await takeCheckpoint(parts, chain)).checkpoint
  } catch (error) {
    if (!(error instanceof ChangedHistory)) throw error
    refusal = error
  }
  const walk = new TreeWalk(storage.heavy, chain, upTo ? [...signed, upTo] : signed)
  const verifier = new ChainVerifier()
  const found = await walkChain(parts, chain, upTo?.head, verifier, walk)
  const change = refusal?.change
  const refused = change && { kind: change.kind, message: change.why, seq: change.found }
  const fault = found ?? refused ?? postdated ?? (await unrecordedIn(storage, chain))
  const { entries } = verifier
  return fault ? { chain, verdict: 'tampered', fault, entries } : { chain, verdict: 'sound', entries }
}

/** The first fault of the anchor and the entries behind it up to a head; without one, of all there are. */
async function walkChain(
  { storage, clock, signer }: VerificationParts,
  chain: string,
  head: Checkpoint['head'] | undefined,
  verifier: ChainVerifier,
  walk: TreeWalk,
): Promise<Fault | undefined> {
  let forged = false
  const lines = whileKept(storage, chain, clock, async function* () {
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
    if (fault) return faultOf(verifier) ?? fault
  }
  if (head) verifier.push(Buffer.from(trailerLine(head)))
  return faultOf(verifier)
}

/** Chains of the database end without a trailer where nothing could be signed of them; that alone is no fault. */
function faultOf(verifier: ChainVerifier): Fault | undefined {
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

async function unrecordedIn(
  storage: VerificationParts['storage'],
  chain: string,
): Promise<Fault | undefined> {
  const message = await findUnrecorded(storage, chain)
  return message === undefined ? undefined : { kind: 'rewritten', message, seq: 0 }
}

const unanchored: Fault = {
  kind: 'rewritten',
  message: 'The anchor of the chain is not one that the service signed',
  seq: 1,
}

/** Grows a tree from the lines of a chain, beside the one that is stored and those that were signed. */
class TreeWalk {
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
    return headerLine(orgOf(this.#chain), { anchor: partOf(anchor) })
  }

  async add(lines: string): Promise<Fault | undefined> {
    for (const line of lines.split('\n')) {
      if (!line.startsWith(entryStart)) continue
      const fault = await this.#leaf(line)
      if (fault) return fault
    }
    return undefined
  }

  async #leaf(line: string): Promise<Fault | undefined> {
    const leaf = leafHash(line.slice(canonicalAt, -1))
    this.#tree.push(leaf)
    this.#leaves.push(leaf)
    const { size } = this.#tree
    for (const { head, root } of this.#signed) {
      if (head.seq !== size) continue
      if (line.slice(checksumAt, checksumAt + 64) !== head.checksum || !this.#tree.root().equals(root))
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
