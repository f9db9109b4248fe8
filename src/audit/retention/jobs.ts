import type { Logger } from 'pino'
import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { systemScope } from '../../core/scope.ts'
import { forEachSettled } from '../../storage/bisect-writes.ts'
import { type CheckpointDependencies, takeCheckpoint } from '../checkpoints/jobs.ts'
import { recordAudit } from '../outbox.ts'
import { orgOfChain, toDraftEntry } from '../rules.ts'
import { findAnchor } from './anchors.ts'
import { archivedUpTo, archiveNext } from './archiving.ts'
import { countExpired } from './entries.ts'
import { type Archive, ArchiveFailure } from './ports.ts'
import { Pruner, type StepResult } from './pruner.ts'
import { findUnrecordedChange } from './recorded-policy.ts'
import { cutoffOf, type RetentionPolicy, retentionActions, toAuditedPolicy } from './rules.ts'
import { acquireLease, failRun, finishRun, getPolicy, listChainsToPrune, renewLease } from './store.ts'

export type RetentionDependencies = CheckpointDependencies & {
  /** undefined when none is configured. */
  archive: Archive | undefined
  log: Pick<Logger, 'warn'>
}

export type PruneRun = {
  state: 'done' | 'more' | 'held' | 'busy' | 'read' | 'failed'
  pruned: number
  /** The policy it applied. */
  policy: RetentionPolicy
}

/** Bounds of one run. */
export type PruneLimits = {
  milliseconds: number
  entries?: number
  /** Not if another process has pruned the chain a moment ago. */
  ifDue?: boolean
}

/**
 * Deletes the entries from the beginning of a chain that are older than its policy keeps, behind a fresh
 * checkpoint. Any number of processes may try at once; one of them works. A failure is stored with the policy
 * and logged.
 */
export async function pruneChain(
  deps: RetentionDependencies,
  chain: string,
  limits: PruneLimits,
): Promise<PruneRun> {
  const { storage, clock, log } = deps
  const policy = await getPolicy(storage.read, systemScope, chain)
  if (policy.hold) return { state: 'held', pruned: 0, policy }
  const lease = newId()
  if (
    !(await storage.write((tx) =>
      acquireLease(tx, chain, lease, { now: clock(), ifDue: limits.ifDue ?? false }),
    ))
  )
    return { state: 'busy', pruned: 0, policy }
  const run: PruneRun = { state: 'done', pruned: 0, policy }
  try {
    run.state = await pruneOrArchive(deps, chain, lease, policy, limits, run)
    await storage.write((tx) => finishRun(tx, chain, lease, run.state === 'done', clock()))
  } catch (error) {
    const known = error instanceof Problem || error instanceof ArchiveFailure
    const message = known ? error.message : 'An unexpected error; the log of the service has it'
    log.warn({ err: error, chain, pruned: run.pruned }, 'audit retention failed: nothing more was deleted')
    await storage.write((tx) => failRun(tx, chain, lease, message, policy.failures, clock()))
    run.state = 'failed'
  }
  return run
}

async function pruneOrArchive(
  deps: RetentionDependencies,
  chain: string,
  lease: string,
  policy: RetentionPolicy,
  { milliseconds, entries = Number.POSITIVE_INFINITY }: PruneLimits,
  run: PruneRun,
): Promise<PruneRun['state']> {
  const { storage, clock, archive } = deps
  const cutoff = cutoffOf(policy, clock())
  const { head } = await findAnchor(storage.read, systemScope, chain)
  if ((await countExpired(storage.heavy, chain, head.seq, cutoff, 1)).entries === 0) return 'done'
  await takeCheckpoint(deps, chain)
  const unrecorded = await findUnrecordedChange(storage, chain)
  if (unrecorded) throw new Problem('audit_history_changed', `${unrecorded}: nothing was deleted`)
  const pruner = new Pruner(deps)
  const end = performance.now() + milliseconds
  for (;;) {
    let upTo = Number.MAX_SAFE_INTEGER
    if (policy.archiveToS3) {
      const { head: now } = await findAnchor(storage.read, systemScope, chain)
      upTo = await archivedUpTo(storage.read, chain, now.seq)
      if (upTo === now.seq) {
        if (!archive) throw new ArchiveFailure(noArchiveMessage)
        if (!(await storage.write((tx) => renewLease(tx, chain, lease, clock())))) return 'busy'
        if ((await archiveNext({ ...deps, archive }, chain, cutoff)) === 0) return 'done'
        continue
      }
    }
    const step = await pruner.pruneBatch({ chain, lease, cutoff, policy, upTo })
    if (typeof step === 'string') return runState(step)
    run.pruned += step
    if (step === 0) return 'done'
    if (performance.now() >= end || run.pruned >= entries) return 'more'
  }
}

const runState = (step: Exclude<StepResult, number>): PruneRun['state'] =>
  step === 'changed' ? 'more' : step

export const noArchiveMessage =
  'No archive is configured: see AUDIT_ARCHIVE_S3_BUCKET, and what stands beside it, in svc-serve(8)'

/** Most chains in one scan for due chains. */
const maxChains = 20
/** Milliseconds of one round, so that it does not delay the shutdown of the service. */
const maxRunMs = 4000

/** Prunes the due chains, one by one; returns whether there may be more. */
export async function pruneDue(deps: RetentionDependencies): Promise<boolean> {
  const { storage, clock } = deps
  const due = await listChainsToPrune(storage.read, clock(), maxChains)
  const end = performance.now() + maxRunMs
  let more = due.length === maxChains
  // A chain that cannot be read or written does not hold up the others.
  await forEachSettled(due, async (chain) => {
    const milliseconds = end - performance.now()
    if (milliseconds <= 0) {
      more = true
      return
    }
    const { state, pruned, policy } = await pruneChain(deps, chain, { milliseconds, ifDue: true })
    if (pruned > 0) {
      const details = { pruned, ...toAuditedPolicy(policy) }
      await storage.write((tx) => recordAudit(tx, toDraftEntry(pruneEvent(chain, details), clock())))
    }
    more ||= state === 'more'
  })
  return more
}

/** Includes the applied policy: the next run compares the stored policy with it. */
const pruneEvent = (chain: string, details: { pruned: number } & ReturnType<typeof toAuditedPolicy>) => ({
  orgId: orgOfChain(chain),
  actorType: 'system' as const,
  actorId: null,
  actorEmail: null,
  action: retentionActions.run,
  resourceType: 'audit_log',
  resourceId: null,
  resourceName: null,
  details,
  ipAddress: null,
  userAgent: null,
  result: 'success' as const,
})
