import { systemScope } from '../../core/scope.ts'
import { type Clock, secondsBetween } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import { genesis, type Head } from '../chain.ts'
import { sealFor } from '../outbox.ts'
import { findAnchor } from '../retention/anchors.ts'
import { isChain, orgOf } from '../rules.ts'
import { findHead, placeIn } from '../store.ts'
import { type Change, ChangedHistory } from './changed-history.ts'
import { type Checkpoint, openCheckpoint, originOf } from './checkpoint.ts'
import { grow, isLeafOf, type Place, storedEntry } from './growth.ts'
import type { Kept } from './kept.ts'
import { isBelievable } from './postdated.ts'
import type { Signer } from './signer.ts'
import { frontierAt, insertCheckpoint, lastCheckpoint, listGrown, MissingTile, treeSize } from './store.ts'
import { saveVerdict } from './verdicts.ts'

export type CheckpointParts = {
  storage: Storage
  signer: Signer
  kept: Kept
  clock: Clock
  /** Told of every refusal to sign. */
  onRefusal(change: Change): void
}

export type Taken = { note: string; checkpoint: Checkpoint }

/** How long the checkpoint of a chain that rests is good for. */
const restSeconds = 3600

/**
 * A signed checkpoint of a chain as it stands, for which everything pending is sealed first. A chain that did
 * not grow gives the last one again for an hour. @throws ChangedHistory, and signs nothing
 */
export async function takeCheckpoint(parts: CheckpointParts, chain: string): Promise<Taken> {
  try {
    return await take(parts, chain)
  } catch (error) {
    if (error instanceof ChangedHistory) await refuse(parts, error.change)
    throw error
  }
}

async function refuse({ storage, signer, clock, onRefusal }: CheckpointParts, change: Change): Promise<void> {
  const { chain, kind, why, found } = change
  const fault = { kind, message: why, seq: found }
  onRefusal(change)
  const verdict = { chain, verdict: 'tampered' as const, fault, entries: found }
  await storage.write((tx) => saveVerdict(tx, signer, verdict, clock()))
}

/** What ends the file of a chain: where it ended, and what was signed of that. */
export type Closing = { head: Head; checkpoint: string | undefined; keys: string[] }

/**
 * A fresh checkpoint to close a file with. Of a chain that gets none, its head as it is and the last checkpoint
 * that it got: the file shows what is wrong to whoever verifies it.
 */
export async function closing(parts: CheckpointParts, chain: string): Promise<Closing> {
  const { storage, signer, kept } = parts
  const keys = await signer.successions()
  try {
    const { note, checkpoint } = await takeCheckpoint(parts, chain)
    return { head: checkpoint.head, checkpoint: note, keys }
  } catch (error) {
    if (!(error instanceof ChangedHistory)) throw error
    const head = await headOf(storage, chain)
    const last = (await kept.read(chain)) ?? (await lastCheckpoint(storage.read, chain))?.note
    return { head, checkpoint: last, keys }
  }
}

const headOf = async ({ read }: Storage, chain: string): Promise<Head> =>
  (await findHead(read, systemScope, chain)) ?? { seq: 0, checksum: genesis }

/** A checkpoint of every chain that grew since its last. A chain that gets none does not keep another from its own. */
export async function takeDue(parts: CheckpointParts): Promise<void> {
  const failures: unknown[] = []
  for (const chain of await listGrown(parts.storage.read)) {
    try {
      await takeCheckpoint(parts, chain)
    } catch (error) {
      if (!(error instanceof ChangedHistory)) failures.push(error)
    }
  }
  if (failures.length > 0) throw failures[0]
}

async function take({ storage, signer, kept, clock }: CheckpointParts, chain: string): Promise<Taken> {
  if (!isChain(chain)) {
    const why = 'No organization has a chain of this name: somebody put it there'
    throw new ChangedHistory({ chain, kind: 'rewritten', signed: 0, found: 0, why })
  }
  await sealFor(storage, systemScope, chain)
  const { read } = storage
  // Before the head is: with another process at work, the chain is never shorter than what was signed of it.
  const last = (await lastCheckpoint(read, chain))?.note
  const outside = await kept.read(chain)
  const signed = [last, outside].flatMap((note) => note ?? []).map((note) => opened(chain, note))
  const size = await treeSize(read, chain)
  // Each before what bounds it: neither sealing nor retention makes a fault of what they do in between, and a chain may begin.
  const end = await placeIn(read, systemScope, chain, 'desc')
  const head = await headOf(storage, chain)
  const first = await placeIn(read, systemScope, chain, 'asc')
  const anchor = await findAnchor(read, systemScope, chain)
  const at: Place = { chain, signed: Math.max(size, ...signed.map((one) => one.head.seq)), found: head.seq }

  checkWhole(at, head, anchor.head, { first, last: end })
  for (const one of signed) await checkContains(storage, at, head, one, size)
  await grow(storage, at, size, head)
  const root = await rootAt(storage, at, head.seq)
  if (!(await isLeafOf(storage.read, chain, head))) {
    throw new ChangedHistory({
      ...at,
      kind: 'rewritten',
      why: `Entry ${head.seq} is not the one in the tree`,
    })
  }

  const now = clock()
  const again = last === undefined ? undefined : openCheckpoint(last, signer.publicKeys.slice(0, 1))
  if (again?.state === 'signed' && isStill(again.checkpoint, head, root)) {
    const { time } = again.checkpoint
    if (isBelievable(time, now) && secondsBetween(time, now) < restSeconds) {
      if (outside !== last) await kept.write(chain, last!)
      return { note: last!, checkpoint: again.checkpoint }
    }
  }
  const checkpoint: Checkpoint = { orgId: orgOf(chain), kind: 'checkpoint', head, root, time: now }
  const note = signer.sign(checkpoint)
  // A crash in between leaves the older note outside, of which the chain is a continuation as well.
  await storage.write((tx) => insertCheckpoint(tx, chain, head.seq, note, now))
  const theirs = await kept.read(chain)
  if (theirs === undefined || opened(chain, theirs).head.seq <= head.seq) await kept.write(chain, note)
  return { note, checkpoint }
}

const isStill = (one: Checkpoint, head: Head, root: Buffer): boolean =>
  one.head.seq === head.seq && one.head.checksum === head.checksum && one.root.equals(root)

/** What a note says of its chain, whoever signed it: also what another key has signed is not to be contradicted. */
function opened(chain: string, note: string): Checkpoint {
  const it = openCheckpoint(note, [])
  if (it.state !== 'unreadable' && originOf(it.checkpoint.orgId) === originOf(orgOf(chain)))
    return it.checkpoint
  throw new ChangedHistory({
    chain,
    kind: 'rewritten',
    signed: 0,
    found: 0,
    why: 'The last checkpoint of the chain is not one: somebody has changed it',
  })
}

/** @throws ChangedHistory unless there are entries from the anchor on, and up to the head */
function checkWhole(
  at: Place,
  head: Head,
  anchor: Head,
  { first, last }: { first: number; last: number },
): void {
  if (last > head.seq) {
    const why = `The chain has entries up to ${last}; its head says ${head.seq}`
    throw new ChangedHistory({ ...at, kind: 'truncated', why })
  }
  if (head.seq > anchor.seq && (first === 0 || first > anchor.seq + 1)) {
    const why = first === 0 ? 'All entries of the chain are gone' : `The entries before ${first} are gone`
    throw new ChangedHistory({ ...at, found: 0, kind: 'truncated', why })
  }
}

/** @throws ChangedHistory unless the chain begins with what was signed */
async function checkContains(
  storage: Storage,
  at: Place,
  head: Head,
  { head: signed, root }: Checkpoint,
  size: number,
): Promise<void> {
  const { chain } = at
  const place = { ...at, signed: signed.seq }
  if (signed.seq > head.seq) {
    const why = `The chain has ${head.seq} entries; ${signed.seq} were signed before`
    throw new ChangedHistory({ ...place, kind: 'truncated', why })
  }
  const rewritten = (what: string) =>
    new ChangedHistory({ ...place, kind: 'rewritten', why: `${what} is not what was signed before` })
  if (signed.seq > 0) {
    const entry = await storedEntry(storage.read, chain, signed.seq)
    if (entry === 'missing' || (entry !== 'pruned' && entry.checksum !== signed.checksum)) {
      throw rewritten(`Entry ${signed.seq}`)
    }
  }
  // Tiles that are gone are made again from the entries.
  if (size < signed.seq) await grow(storage, at, size, head)
  if (!(await rootAt(storage, at, signed.seq)).equals(root)) {
    throw rewritten(`The tree over the first ${signed.seq} entries`)
  }
}

/** @throws ChangedHistory when tiles are gone */
async function rootAt({ read }: Storage, at: Place, size: number): Promise<Buffer> {
  try {
    return (await frontierAt(read, at.chain, size)).root()
  } catch (error) {
    if (!(error instanceof MissingTile)) throw error
    throw new ChangedHistory({ ...at, kind: 'rewritten', why: error.message })
  }
}
