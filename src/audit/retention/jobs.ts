import type { Logger } from 'pino'
import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { systemScope } from '../../core/scope.ts'
import { forEachSettled } from '../../storage/bisect-writes.ts'
import { type CheckpointParts, takeCheckpoint } from '../checkpoints/jobs.ts'
import { record } from '../outbox.ts'
import { draftOf, orgOf } from '../rules.ts'
import { findAnchor } from './anchors.ts'
import { archivedUpTo, archiveNext } from './archiving.ts'
import { countOld } from './entries.ts'
import { type Archive, ArchiveFailure } from './ports.ts'
import { Pruner, type Step } from './prune.ts'
import { findUnrecorded } from './recorded.ts'
import { actions, cutoffOf, type Policy, told } from './rules.ts'
import { claim, fail, finish, getPolicy, holdLease, listDue } from './store.ts'

export type RetentionParts = CheckpointParts & {
  /** undefined: none is configured. */
  archive: Archive | undefined
  log: Pick<Logger, 'warn'>
}

export type Run = {
  state: 'done' | 'more' | 'held' | 'busy' | 'read' | 'failed'
  pruned: number
  /** By which policy. */
  policy: Policy
}

/** Bounds of one run. */
export type Limits = { milliseconds: number; entries?: number }

/**
 * Deletes from the beginning of a chain what is older than its policy keeps, behind a fresh checkpoint. Any
 * number of processes may try at once: one works. A failure is kept with the policy, and told.
 */
export async function pruneChain(parts: RetentionParts, chain: string, limits: Limits): Promise<Run> {
  const { storage, clock, log } = parts
  const policy = await getPolicy(storage.read, systemScope, chain)
  if (policy.hold) return { state: 'held', pruned: 0, policy }
  const lease = newId()
  if (!(await storage.write((tx) => claim(tx, chain, lease, clock()))))
    return { state: 'busy', pruned: 0, policy }
  const run: Run = { state: 'done', pruned: 0, policy }
  try {
    run.state = await prune(parts, chain, lease, policy, limits, run)
    await storage.write((tx) => finish(tx, chain, lease, run.state === 'done', clock()))
  } catch (error) {
    const known = error instanceof Problem || error instanceof ArchiveFailure
    const message = known ? error.message : 'An unexpected error; the log of the service has it'
    log.warn({ err: error, chain, pruned: run.pruned }, 'audit retention failed: nothing more was deleted')
    await storage.write((tx) => fail(tx, chain, lease, message, policy.failures, clock()))
    run.state = 'failed'
  }
  return run
}

async function prune(
  parts: RetentionParts,
  chain: string,
  lease: string,
  policy: Policy,
  { milliseconds, entries = Number.POSITIVE_INFINITY }: Limits,
  run: Run,
): Promise<Run['state']> {
  const { storage, clock, archive } = parts
  const cutoff = cutoffOf(policy, clock())
  const { head } = await findAnchor(storage.read, systemScope, chain)
  if ((await countOld(storage.heavy, chain, head.seq, cutoff, 1)).entries === 0) return 'done'
  await takeCheckpoint(parts, chain)
  const unrecorded = await findUnrecorded(storage, chain)
  if (unrecorded) throw new Problem('audit_history_changed', `${unrecorded}: nothing was deleted`)
  const pruner = new Pruner(parts)
  const end = performance.now() + milliseconds
  for (;;) {
    let upTo = Number.MAX_SAFE_INTEGER
    if (policy.archiveToS3) {
      const { head: now } = await findAnchor(storage.read, systemScope, chain)
      upTo = await archivedUpTo(storage.read, chain, now.seq)
      if (upTo === now.seq) {
        if (!archive) throw new ArchiveFailure(unconfigured)
        if (!(await storage.write((tx) => holdLease(tx, chain, lease, clock())))) return 'busy'
        if ((await archiveNext({ ...parts, archive }, chain, cutoff)) === 0) return 'done'
        continue
      }
    }
    const step = await pruner.step({ chain, lease, cutoff, policy, upTo })
    if (typeof step === 'string') return stateOf(step)
    run.pruned += step
    if (step === 0) return 'done'
    if (performance.now() >= end || run.pruned >= entries) return 'more'
  }
}

const stateOf = (step: Exclude<Step, number>): Run['state'] => (step === 'changed' ? 'more' : step)

export const unconfigured =
  'No archive is configured: set AUDIT_ARCHIVE_S3_BUCKET and, for other storage than that of AWS, AUDIT_ARCHIVE_S3_ENDPOINT'

/** Chains of one look at what is due. */
const few = 20
/** Milliseconds of one round, so that a service that is to end is not kept from it. */
const round = 4000

/** Deletes what is due, chain by chain; whether there may be more. */
export async function pruneDue(parts: RetentionParts): Promise<boolean> {
  const { storage, clock } = parts
  const due = await listDue(storage.read, clock(), few)
  const end = performance.now() + round
  let more = due.length === few
  // One of which nothing can be known, or kept, keeps no other from its turn.
  await forEachSettled(due, async (chain) => {
    const milliseconds = end - performance.now()
    if (milliseconds <= 0) {
      more = true
      return
    }
    const { state, pruned, policy } = await pruneChain(parts, chain, { milliseconds })
    if (pruned > 0) {
      const details = { pruned, ...told(policy) }
      await storage.write((tx) => record(tx, draftOf(happened(chain, details), clock())))
    }
    more ||= state === 'more'
  })
  return more
}

/** By which policy, too: the next run holds the policy against it. */
const happened = (chain: string, details: { pruned: number } & ReturnType<typeof told>) => ({
  orgId: orgOf(chain),
  actorType: 'system' as const,
  actorId: null,
  actorEmail: null,
  action: actions.run,
  resourceType: 'audit_log',
  resourceId: null,
  resourceName: null,
  details,
  ipAddress: null,
  userAgent: null,
  result: 'success' as const,
})
