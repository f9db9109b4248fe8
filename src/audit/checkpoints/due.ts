import { newId } from '../../core/new-id.ts'
import { writeLeavingLocked } from '../../storage/bisect-writes.ts'
import type { Db } from '../../storage/open.ts'
import { claimChains, endClaims, listUnsignedChains, postponeChains } from './claims.ts'
import { HistoryChangedError } from './history-changed.ts'
import {
  type CheckpointDependencies,
  type SignedChain,
  signRecordingRefusal,
  writeLocalCopy,
} from './jobs.ts'
import { insertCheckpoint } from './store.ts'

/** Chains whose checkpoints one transaction stores. */
const batch = 50
/** Milliseconds after which a turn begins no further batch. */
const turnMs = 4000
/** Entries that the tree of one chain takes in at once: a very large chain goes on in the next batches. */
const maxEntries = 10_000

type Signed = SignedChain & { chain: string }

/**
 * Takes a checkpoint of every chain that grew and whose last one is `restSeconds` old, for the length of a turn. Processes
 * that do so at once claim different chains. A chain that fails does not hold up the others. Returns whether there is more
 * to do.
 */
export async function takeDueCheckpoints(
  deps: CheckpointDependencies,
  { restSeconds = 0 }: { restSeconds?: number } = {},
): Promise<boolean> {
  const { storage, clock } = deps
  const holder = newId()
  const failures: unknown[] = []
  const end = performance.now() + turnMs
  let more = true
  while (more && performance.now() < end) {
    const now = clock()
    const found = await listUnsignedChains(storage.heavy, { now, restSeconds, limit: batch })
    more = found.length > 0
    // A claim that is lost in a power failure is made again.
    const claim = (tx: Db, some: readonly string[]) => claimChains(tx, some, { holder, now })
    const { done, refused } = await writeLeavingLocked(storage, found, claim, { unsynced: true })
    failures.push(...refused.map(({ error }) => error))
    const claimed = done.flat()
    // The same chains would be found again and again.
    if (refused.length > 0 && claimed.length === 0) break
    const broken = await signBatch(deps, claimed, holder, failures)
    const postpone = (tx: Db) => postponeChains(tx, broken, { holder, now, restSeconds })
    if (broken.length > 0) await storage.write(postpone, { unsynced: true })
  }
  if (failures.length > 0) throw failures[0]
  return more
}

/** Signs each chain by itself, and stores the checkpoints together; returns the chains that contradict what was signed. */
async function signBatch(
  deps: CheckpointDependencies,
  chains: readonly string[],
  holder: string,
  failures: unknown[],
): Promise<string[]> {
  const { storage } = deps
  const signed: Signed[] = []
  const unfinished: string[] = []
  const broken: string[] = []
  for (const chain of chains) {
    try {
      const one = await signRecordingRefusal(deps, chain, maxEntries)
      if (one) signed.push({ chain, ...one })
      else unfinished.push(chain)
    } catch (error) {
      if (error instanceof HistoryChangedError) broken.push(chain)
      else failures.push(error)
    }
  }
  const { done, refused } = await writeLeavingLocked(storage, signed, (tx, some) =>
    storeSigned(tx, some, holder),
  )
  failures.push(...refused.map(({ error }) => error))
  if (unfinished.length > 0) {
    await storage.write((tx) => endClaims(tx, unfinished, holder), { unsynced: true })
  }
  for (const one of done.flat()) {
    try {
      await writeLocalCopy(deps, one.chain, one)
    } catch (error) {
      failures.push(error)
    }
  }
  return broken
}

/** Stores those that this process still has claimed, and returns them. */
async function storeSigned(tx: Db, signed: readonly Signed[], holder: string): Promise<Signed[]> {
  const names = signed.map(({ chain }) => chain)
  const own = await endClaims(tx, names, holder)
  const kept = signed.filter(({ chain, isNew }) => isNew && own.has(chain))
  for (const { chain, taken } of kept) {
    const { head, time } = taken.checkpoint
    await insertCheckpoint(tx, chain, head.seq, taken.note, time)
  }
  return kept
}
