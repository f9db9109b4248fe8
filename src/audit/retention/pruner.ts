import { setTimeout as sleep } from 'node:timers/promises'
import { systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import type { CheckpointDependencies } from '../checkpoints/jobs.ts'
import { orgOf } from '../rules.ts'
import { type Anchor, findAnchor, moveAnchor } from './anchors.ts'
import { deleteEntries, readExpired } from './entries.ts'
import { hasReadLease } from './read-leases.ts'
import type { RetentionPolicy } from './rules.ts'
import { lockPolicy, renewLease } from './store.ts'

export type PruneTask = {
  chain: string
  /** Of the run, without which it deletes nothing. */
  lease: string
  cutoff: Instant
  policy: RetentionPolicy
  /** The newest entry that may go. */
  upTo: number
}

/** Milliseconds that deleting may take of a transaction, and most rows of one. */
const targetMs = 8
const maxBatch = 500
const minBatch = 25

/** Why nothing more is deleted, or how many entries were. */
export type StepResult = number | 'held' | 'busy' | 'read' | 'changed'

/**
 * Deletes the oldest entries of a chain, some at a time: an anchor is signed that stands for them, and in its
 * transaction they go. At every moment the chain begins right behind its anchor.
 */
export class Pruner {
  readonly #parts: Pick<CheckpointDependencies, 'storage' | 'signer' | 'clock'>
  #batch = 100

  constructor(parts: Pick<CheckpointDependencies, 'storage' | 'signer' | 'clock'>) {
    this.#parts = parts
  }

  /** One batch; 0 when none is old enough. @throws audit_history_changed */
  async pruneBatch(cut: PruneTask): Promise<StepResult> {
    const { storage, signer, clock } = this.#parts
    const { chain, cutoff, upTo } = cut
    const anchor = await findAnchor(storage.read, systemScope, chain)
    if (anchor.head.seq >= upTo) return 0
    const found = await readExpired(storage.heavy, chain, anchor, { cutoff, limit: this.#batch, upTo })
    const count = found.entries.length
    if (count === 0) return 0
    const time = clock()
    const note = signer.sign({
      orgId: orgOf(chain),
      kind: 'anchor',
      head: found.head,
      root: found.tree.root(),
      time,
    })
    const next: Anchor = {
      head: found.head,
      tree: found.tree,
      prunedCount: anchor.prunedCount + count,
      signed: { note, time },
    }
    const { outcome, took } = await deleteBatch(storage, cut, anchor, next, time)
    if (took > targetMs) this.#batch = Math.max(minBatch, Math.floor(this.#batch / 2))
    else if (took < targetMs / 2) this.#batch = Math.min(maxBatch, this.#batch * 2)
    // Other writers get as much time as this one took.
    await sleep(Math.min(100, Math.ceil(took)))
    return outcome
  }
}

async function deleteBatch(storage: Storage, cut: PruneTask, from: Anchor, to: Anchor, now: Instant) {
  const { chain, lease, policy } = cut
  let took = 0
  const outcome = await storage.write(
    async (tx): Promise<StepResult> => {
      const started = performance.now()
      try {
        const current = await lockPolicy(tx, systemScope, chain)
        if (current.hold) return 'held'
        if (current.retentionDays !== policy.retentionDays || current.archiveToS3 !== policy.archiveToS3) {
          return 'changed'
        }
        if (!(await renewLease(tx, chain, lease, now))) return 'busy'
        if (await hasReadLease(tx, chain, now)) return 'read'
        if ((await findAnchor(tx, systemScope, chain)).head.seq !== from.head.seq) return 'busy'
        await moveAnchor(tx, chain, to)
        const gone = await deleteEntries(tx, chain, from.head.seq, to.head.seq)
        if (gone !== to.head.seq - from.head.seq) throw new Error(`${gone} entries of ${chain} were to go`)
        return gone
      } finally {
        took = performance.now() - started
      }
    },
    // Lost with the power, the entries are there again, and so is the anchor before them.
    { unsynced: true },
  )
  return { outcome, took }
}
