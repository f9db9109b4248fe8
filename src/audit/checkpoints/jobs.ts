import { systemScope } from '../../core/scope.ts'
import { type Clock, secondsBetween } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import { type ChainHead, genesisChecksum } from '../chain.ts'
import { sealPendingFor } from '../outbox.ts'
import { findAnchor, openAnchor } from '../retention/anchors.ts'
import { isChain, orgOfChain } from '../rules.ts'
import { edgeSeq, findHead } from '../store.ts'
import { type Checkpoint, checkpointOrigin, openCheckpoint } from './checkpoint.ts'
import { type ChainState, extendTree, findStoredEntry, isLastLeaf } from './extend-tree.ts'
import { type HistoryChange, HistoryChangedError } from './history-changed.ts'
import type { LocalCopies } from './local-copies.ts'
import { isPlausibleTime } from './postdated.ts'
import { type Restored, selectExplainingRestore } from './restored.ts'
import type { Signer } from './signer.ts'
import {
  findLastCheckpoint,
  frontierAt,
  insertCheckpoint,
  listRestored,
  MissingTileError,
  treeSize,
} from './store.ts'
import { saveVerdict } from './verdicts.ts'

export type CheckpointDependencies = {
  storage: Storage
  signer: Signer
  localCopies: LocalCopies
  clock: Clock
  /** Called for every refusal to sign. */
  onRefusal(change: HistoryChange): void
  /** Called when a local copy is given up because a restore lost what it is about. */
  onRestored?(lost: Restored & { chain: string; signed: number }): void
}

export type TakenCheckpoint = { note: string; checkpoint: Checkpoint }

/** How long the checkpoint of an unchanged chain is reused. */
const reuseSeconds = 3600

/**
 * Takes a signed checkpoint of a chain in its current state; everything pending is sealed first. The last
 * checkpoint of an unchanged chain is returned again for an hour.
 * @throws HistoryChangedError, and signs nothing
 */
export async function takeCheckpoint(deps: CheckpointDependencies, chain: string): Promise<TakenCheckpoint> {
  const signed = (await signRecordingRefusal(deps, chain))!
  const { taken, isNew } = signed
  if (!isNew) return taken
  const { note, checkpoint } = taken
  await deps.storage.write((tx) => insertCheckpoint(tx, chain, checkpoint.head.seq, note, checkpoint.time))
  await writeLocalCopy(deps, chain, signed)
  return taken
}

/** Signs a chain; the caller stores what is new. undefined: its tree has more to take in than `max` entries. */
export async function signRecordingRefusal(
  deps: CheckpointDependencies,
  chain: string,
  max?: number,
): Promise<SignedChain | undefined> {
  try {
    return await verifyAndSign(deps, chain, max)
  } catch (error) {
    if (error instanceof HistoryChangedError) await recordRefusal(deps, error.change)
    throw error
  }
}

export type SignedChain = {
  taken: TakenCheckpoint
  isNew: boolean
  /** The local copy, if a restore lost what it is about: the new one replaces it, even one of fewer entries. */
  supersededCopy?: string | undefined
}

/**
 * After it was stored: a crash in between leaves the older note outside the database; the chain is a continuation of that
 * one as well.
 */
export async function writeLocalCopy(
  { localCopies }: CheckpointDependencies,
  chain: string,
  { taken: { note, checkpoint }, supersededCopy }: SignedChain,
): Promise<void> {
  const local = await localCopies.read(chain)
  const isOutdated = local === undefined || local === supersededCopy
  if (isOutdated || parseOwnCheckpoint(chain, local).head.seq <= checkpoint.head.seq)
    await localCopies.write(chain, note)
}

async function recordRefusal(
  { storage, signer, clock, onRefusal }: CheckpointDependencies,
  change: HistoryChange,
): Promise<void> {
  const { chain, kind, why, found } = change
  const fault = { kind, message: why, seq: found }
  onRefusal(change)
  const verdict = { chain, verdict: 'tampered' as const, fault, entries: found }
  await storage.write((tx) => saveVerdict(tx, signer, verdict, clock()))
}

/** The end of a chain's file: its head, and the checkpoint signed of it. */
export type ChainEnd = { head: ChainHead; checkpoint: string | undefined; keys: string[] }

/**
 * Takes a fresh checkpoint to close a file with. A chain that cannot get one ends with its current head and its
 * last checkpoint, so that the file shows the fault to its verifier.
 */
export async function signedChainEnd(deps: CheckpointDependencies, chain: string): Promise<ChainEnd> {
  const { storage, signer, localCopies } = deps
  const keys = await signer.successions()
  try {
    const { note, checkpoint } = await takeCheckpoint(deps, chain)
    return { head: checkpoint.head, checkpoint: note, keys }
  } catch (error) {
    if (!(error instanceof HistoryChangedError)) throw error
    const head = await headOf(storage, chain)
    const last = (await localCopies.read(chain)) ?? (await findLastCheckpoint(storage.read, chain))?.note
    return { head, checkpoint: last, keys }
  }
}

const headOf = async ({ read }: Storage, chain: string): Promise<ChainHead> =>
  (await findHead(read, systemScope, chain)) ?? { seq: 0, checksum: genesisChecksum }

async function verifyAndSign(
  { storage, signer, localCopies, clock, onRestored }: CheckpointDependencies,
  chain: string,
  max = Number.POSITIVE_INFINITY,
): Promise<SignedChain | undefined> {
  if (!isChain(chain)) {
    const why = 'No organization has a chain of this name: somebody put it there'
    throw new HistoryChangedError({ chain, kind: 'rewritten', signed: 0, found: 0, why })
  }
  await sealPendingFor(storage, systemScope, chain)
  const { read } = storage
  // Read before the head, so the chain is never shorter than what was signed of it, even while another process
  // works.
  const last = (await findLastCheckpoint(read, chain))?.note
  const outside = await localCopies.read(chain)
  const copy = outside === undefined ? undefined : parseOwnCheckpoint(chain, outside)
  const lost = copy && (await findExplainingRestore({ storage, signer }, chain, copy))
  const kept = lost === undefined ? outside : undefined
  const signed = [last, kept].flatMap((note) => note ?? []).map((note) => parseOwnCheckpoint(chain, note))
  const size = await treeSize(read, chain)
  // Each is read before the value that bounds it, so entries sealed or removed in between, or a chain that
  // begins, are no fault.
  const end = await edgeSeq(read, systemScope, chain, 'desc')
  const head = await headOf(storage, chain)
  const first = await edgeSeq(read, systemScope, chain, 'asc')
  const anchor = await findAnchor(read, systemScope, chain)
  const at: ChainState = {
    chain,
    signed: Math.max(size, ...signed.map((one) => one.head.seq)),
    found: head.seq,
  }

  checkComplete(at, head, anchor.head, { first, last: end })
  if (head.seq - size > max) {
    await extendTree(storage, at, size, head, size + max)
    return undefined
  }
  for (const one of signed) await checkConsistent(storage, at, head, one, size)
  await extendTree(storage, at, size, head)
  const root = await rootAt(storage, at, head.seq)
  if (!(await isLastLeaf(storage.read, chain, head))) {
    throw new HistoryChangedError({
      ...at,
      kind: 'rewritten',
      why: `Entry ${head.seq} is not the one in the tree`,
    })
  }

  if (lost !== undefined) onRestored?.({ ...lost, chain, signed: copy!.head.seq })
  const now = clock()
  const again = last === undefined ? undefined : openCheckpoint(last, signer.publicKeys.slice(0, 1))
  if (again?.state === 'signed' && isUnchanged(again.checkpoint, head, root)) {
    const { time } = again.checkpoint
    if (isPlausibleTime(time, now) && secondsBetween(time, now) < reuseSeconds) {
      if (outside !== last) await localCopies.write(chain, last!)
      return { taken: { note: last!, checkpoint: again.checkpoint }, isNew: false }
    }
  }
  const checkpoint: Checkpoint = { orgId: orgOfChain(chain), kind: 'checkpoint', head, root, time: now }
  const supersededCopy = lost && outside
  return { taken: { note: signer.sign(checkpoint), checkpoint }, isNew: true, supersededCopy }
}

/** The restore that lost what this local copy is about; undefined without one. */
export async function findExplainingRestore(
  { storage, signer }: Pick<CheckpointDependencies, 'storage' | 'signer'>,
  chain: string,
  copy: Checkpoint,
): Promise<Restored | undefined> {
  const { read } = storage
  const notes = await listRestored(read, chain)
  if (notes.length === 0 || copy.orgId !== orgOfChain(chain)) return undefined
  const trusted = await signer.trusted()
  return selectExplainingRestore(notes, copy, trusted, async ({ head, time }) => {
    const entry = await findStoredEntry(read, chain, head.seq)
    if (typeof entry !== 'string') return entry.checksum === head.checksum
    // An entry that is not there proves nothing, unless the service signed that it was removed: since the restore, or as
    // the last one before it.
    const anchor = await findAnchor(read, systemScope, chain)
    if (anchor.signed === null) return head.seq === 0
    const signed = openAnchor(anchor, orgOfChain(chain), trusted)
    if (signed === undefined) return false
    return signed.head.seq === head.seq
      ? signed.head.checksum === head.checksum
      : signed.head.seq > head.seq && signed.time > time
  })
}

const isUnchanged = (one: Checkpoint, head: ChainHead, root: Buffer): boolean =>
  one.head.seq === head.seq && one.head.checksum === head.checksum && one.root.equals(root)

/**
 * Parses a checkpoint of a chain whatever key signed it: the chain must not contradict one signed by another
 * key either.
 */
function parseOwnCheckpoint(chain: string, note: string): Checkpoint {
  const it = openCheckpoint(note, [])
  if (
    it.state !== 'unreadable' &&
    checkpointOrigin(it.checkpoint.orgId) === checkpointOrigin(orgOfChain(chain))
  )
    return it.checkpoint
  throw new HistoryChangedError({
    chain,
    kind: 'rewritten',
    signed: 0,
    found: 0,
    why: 'The last checkpoint of the chain is not one: somebody has changed it',
  })
}

/** @throws HistoryChangedError unless there are entries from the anchor on and up to the head */
function checkComplete(
  at: ChainState,
  head: ChainHead,
  anchor: ChainHead,
  { first, last }: { first: number; last: number },
): void {
  if (last > head.seq) {
    const why = `The chain has entries up to ${last}; its head says ${head.seq}`
    throw new HistoryChangedError({ ...at, kind: 'truncated', why })
  }
  if (head.seq > anchor.seq && (first === 0 || first > anchor.seq + 1)) {
    const why = first === 0 ? 'All entries of the chain are gone' : `The entries before ${first} are gone`
    throw new HistoryChangedError({ ...at, found: 0, kind: 'truncated', why })
  }
}

/** @throws HistoryChangedError unless the chain begins with what was signed */
async function checkConsistent(
  storage: Storage,
  at: ChainState,
  head: ChainHead,
  { head: signed, root }: Checkpoint,
  size: number,
): Promise<void> {
  const { chain } = at
  const place = { ...at, signed: signed.seq }
  if (signed.seq > head.seq) {
    const why = `The chain has ${head.seq} entries; ${signed.seq} were signed before`
    throw new HistoryChangedError({ ...place, kind: 'truncated', why })
  }
  const rewritten = (what: string) =>
    new HistoryChangedError({ ...place, kind: 'rewritten', why: `${what} is not what was signed before` })
  if (signed.seq > 0) {
    const entry = await findStoredEntry(storage.read, chain, signed.seq)
    if (entry === 'missing' || (entry !== 'pruned' && entry.checksum !== signed.checksum)) {
      throw rewritten(`Entry ${signed.seq}`)
    }
  }
  // Missing tiles are rebuilt from the entries.
  if (size < signed.seq) await extendTree(storage, at, size, head)
  if (!(await rootAt(storage, at, signed.seq)).equals(root)) {
    throw rewritten(`The tree over the first ${signed.seq} entries`)
  }
}

/** @throws HistoryChangedError when tiles are missing */
async function rootAt({ read }: Storage, at: ChainState, size: number): Promise<Buffer> {
  try {
    return (await frontierAt(read, at.chain, size)).root()
  } catch (error) {
    if (!(error instanceof MissingTileError)) throw error
    throw new HistoryChangedError({ ...at, kind: 'rewritten', why: error.message })
  }
}
