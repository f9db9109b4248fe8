import { setTimeout as sleep } from 'node:timers/promises'
import { systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import type { CheckpointDependencies } from '../checkpoints/jobs.ts'
import { orgOfChain } from '../rules.ts'
import { type Anchor, findAnchor, moveAnchor } from './anchors.ts'
import { deleteEntries, readExpired } from './entries.ts'
import { hasReadLease } from './read-leases.ts'
import type { RetentionPolicy } from './rules.ts'
import { lockPolicy, renewLease } from './store.ts'

export type PruneTask = {
  chain: string
  /** Lease of the run, without which nothing is deleted. */
  lease: string
  cutoff: Instant
  policy: RetentionPolicy
  /** Sequence number of the newest entry that may be deleted. */
  upTo: number
}

/** Milliseconds that deleting may take in a transaction, and bounds of its rows. */
const targetMs = 8
const maxBatch = 500
const minBatch = 25

/** How many entries were deleted, or why no more are. */
export type StepResult = number | 'held' | 'busy' | 'read' | 'changed'

/**
 * Deletes the oldest entries of a chain in batches. Each transaction stores a signed anchor that replaces the
 * entries and deletes them, so the chain always begins right after its anchor.
 */
export class Pruner {
  readonly #deps: Pick<CheckpointDependencies, 'storage' | 'signer' | 'clock'>
  #batch = 100

  constructor(deps: Pick<CheckpointDependencies, 'storage' | 'signer' | 'clock'>) {
    this.#deps = deps
  }

  /** Deletes one batch; returns 0 when no entry is old enough. @throws audit_history_changed */
  async pruneBatch(task: PruneTask): Promise<StepResult> {
    const { storage, signer, clock } = this.#deps
    const { chain, cutoff, upTo } = task
    const anchor = await findAnchor(storage.read, systemScope, chain)
    if (anchor.head.seq >= upTo) return 0
    const found = await readExpired(storage.heavy, chain, anchor, { cutoff, limit: this.#batch, upTo })
    const count = found.entries.length
    if (count === 0) return 0
    const time = clock()
    const note = signer.sign({
      orgId: orgOfChain(chain),
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
    const { outcome, took } = await deleteBatch(storage, task, anchor, next, time)
    if (took > targetMs) this.#batch = Math.max(minBatch, Math.floor(this.#batch / 2))
    else if (took < targetMs / 2) this.#batch = Math.min(maxBatch, this.#batch * 2)
    // Leaves other writers as much time as this transaction took.
    await sleep(Math.min(100, Math.ceil(took)))
    return outcome
  }
}

async function deleteBatch(storage: Storage, task: PruneTask, from: Anchor, to: Anchor, now: Instant) {
  const { chain, lease, policy } = task
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
        const due = to.head.seq - from.head.seq
        if (gone !== due) throw new Error(`Deleted ${gone} entries of ${chain} instead of ${due}`)
        return gone
      } finally {
        took = performance.now() - started
      }
    },
    // If a power failure loses it, the entries are back, and so is the anchor before them.
    { unsynced: true },
  )
  return { outcome, took }
}
