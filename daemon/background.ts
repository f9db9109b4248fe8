import { deleteOldCommands, reapCommands } from '../src/agents/commands/jobs.ts'
import { trimOutputs } from '../src/agents/commands/output-quota.ts'
import { reconcileRollout } from '../src/agents/rollouts/jobs.ts'
import { sweepRotations } from '../src/agents/tokens/store.ts'
import { takeDueCheckpoints } from '../src/audit/checkpoints/jobs.ts'
import { verifyDue } from '../src/audit/checkpoints/verification.ts'
import { recordAudit, sealPending } from '../src/audit/outbox.ts'
import { pruneDue } from '../src/audit/retention/jobs.ts'
import { type AuditEvent, toDraftEntry } from '../src/audit/rules.ts'
import { addSeconds, type Instant, secondsBetween } from '../src/core/time.ts'
import { sweepBuckets } from '../src/credentials/api-keys/usage.ts'
import { checkLiveness } from '../src/devices/jobs.ts'
import { refreshDueGroups } from '../src/groups/jobs.ts'
import { sweepChanges } from '../src/groups/members.ts'
import { sweepFactors } from '../src/identity/factors/store.ts'
import { sweepInvitations } from '../src/identity/invitations/store.ts'
import { sweepMarks } from '../src/identity/password-guard/store.ts'
import { issueResets } from '../src/identity/passwords/jobs.ts'
import { sweepResets } from '../src/identity/passwords/store.ts'
import { sweepRegistrations } from '../src/identity/registration/store.ts'
import { sweepSessions } from '../src/identity/sessions/store.ts'
import { sweepInvited, type User } from '../src/identity/store.ts'
import { deleteOldLogs, enforceQuotas, recountBytes } from '../src/logs/jobs.ts'
import { type MailFailure, sendDueMails } from '../src/messages/jobs.ts'
import { sweepPhoneCodes } from '../src/messages/store.ts'
import { sweepSignIns } from '../src/sso/sign-in/store.ts'
import { forEachSettled } from '../src/storage/bisect-writes.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { sweepTokens } from '../src/trust/store.ts'
import { tidy } from '../src/webhooks/jobs.ts'
import { DeliveryWorker } from '../src/webhooks/worker/delivery-worker.ts'
import { fanOut } from '../src/webhooks/worker/fan-out.ts'
import type { Config } from './config.ts'
import type { Dependencies } from './dependencies.ts'
import { deleteOldAttempts } from './idempotency.ts'
import { type Loop, loop } from './loop.ts'
import { sweepWindows } from './shared-windows.ts'

/** While the service was down no agent could report: agents get this time before they count as silent. */
const startSeconds = 90

/** The background loops. */
export function backgroundLoops(parts: Dependencies, config: Config): Loop[] {
  const { storage, limiter, meter, clock, log } = parts
  const onFailure = (failure: MailFailure) => log.warn(failure, 'a mail could not be sent')
  const onIssued = (tx: Db, user: User, now: string) =>
    recordAudit(tx, toDraftEntry(resetRequested(user), now))
  const sealer = loop(
    'sealer',
    async () => {
      const [failure] = await sealPending(storage, clock)
      if (failure !== undefined) throw failure
    },
    2000,
    parts,
    { restMs: 25 },
  )
  if (!storage.traits.serialWrites) storage.onCommit(sealer.wake)
  // Mail is rare: it waits a second instead of a query after every commit.
  const issueLinks = () => issueResets({ ...parts, onIssued })
  const sendLetters = async () => {
    if (await sendDueMails({ ...parts, onFailure })) postman.wake()
  }
  const postman: Loop = loop(
    'postman',
    async () => {
      await forEachSettled([issueLinks, sendLetters], (work) => work())
    },
    1000,
    parts,
  )
  sealer.wake()
  postman.wake()
  const sweeper = loop(
    'sweeper',
    async () => {
      await limiter.sweep()
      await deleteExpired(storage, clock())
    },
    60_000,
    parts,
  )
  const aside = loop('set aside', () => parts.setAside.tell(), 10_000, parts)
  const counter = loop('key counter', () => meter.flush(clock()), 2000, parts)
  const since = clock()
  const grace = Math.min(config.offlineAfterSeconds, startSeconds)
  const watch = loop(
    'device watch',
    async () => {
      if (secondsBetween(since, clock()) >= grace) await checkLiveness(storage, config, clock())
    },
    10_000,
    parts,
  )
  const grouper: Loop = loop(
    'device groups',
    async () => {
      if (await refreshDueGroups(parts)) grouper.wake()
    },
    15_000,
    parts,
  )
  const rollouts = loop(
    'agent rollouts',
    async () => {
      const isJudging = secondsBetween(since, clock()) >= grace
      if (await reconcileRollout({ ...parts, ...config }, { isJudging })) parts.rollouts.isStarted = false
    },
    15_000,
    parts,
  )
  storage.onCommit(() => {
    if (parts.rollouts.isStarted) rollouts.wake()
  })
  let counted: string | undefined
  const forgetter: Loop = loop(
    'old logs',
    async () => {
      await deleteOldLogs(storage, config, clock())
      counted = await recountBytes(storage, counted)
    },
    600_000,
    parts,
    { firstMs: 120_000 },
  )
  const room = loop(
    'room for logs',
    async () => parts.logs.hold(await enforceQuotas(storage, parts.logQuota)),
    60_000,
    parts,
    { restMs: 2000 },
  )
  // Shortly after, when the filling transaction is committed.
  parts.logQuota.onFull(() => setTimeout(room.wake, 250).unref())
  const outputs = loop(
    'room for outputs',
    async () => parts.outputs.hold(await trimOutputs(storage, parts.commandQuota, clock())),
    60_000,
    parts,
    { restMs: 2000 },
  )
  parts.commandQuota.onFull(() => setTimeout(outputs.wake, 250).unref())
  const entries = loop('agent entries', () => parts.agentEntries.write(storage, clock()), 600_000, parts, {
    firstMs: 600_000,
  })
  const news = loop('agent events', () => parts.agentEvents.tell(storage, clock()), 600_000, parts, {
    firstMs: 600_000,
  })
  const reaper = loop('commands', () => reapCommands(storage, parts.nudge, clock()), 15_000, parts)
  const commands = loop('old commands', () => deleteOldCommands(storage, clock()), 600_000, parts, {
    firstMs: 300_000,
  })
  const { parts: checking } = parts.audit
  const everyMs = config.checkpointSeconds * 1000
  const checkpoints = loop('audit checkpoints', () => takeDueCheckpoints(checking), everyMs, parts, {
    firstMs: Math.min(everyMs, 60_000),
  })
  const verifier = loop('audit verification', () => verifyDue(checking), 60_000, parts, { firstMs: 300_000 })
  const pruner: Loop = loop(
    'audit retention',
    async () => {
      if (config.auditRetentionOn && (await pruneDue({ ...parts, ...checking }))) pruner.wake()
    },
    600_000,
    parts,
    { firstMs: 120_000 },
  )
  return [
    sealer,
    postman,
    sweeper,
    aside,
    counter,
    watch,
    grouper,
    rollouts,
    forgetter,
    room,
    outputs,
    entries,
    news,
    reaper,
    commands,
    checkpoints,
    verifier,
    pruner,
    ...integrityOf(parts, config),
    ...webhooksOf(parts, config),
  ]
}

const sweeps: readonly ((tx: Db, now: Instant) => Promise<void>)[] = [
  sweepSessions,
  sweepMarks,
  sweepFactors,
  sweepInvitations,
  sweepInvited,
  sweepResets,
  sweepRegistrations,
  deleteOldAttempts,
  sweepPhoneCodes,
  sweepChanges,
  sweepSignIns,
  sweepTokens,
  (tx, now) => sweepRotations(tx, addSeconds(now, -86_400)),
  (tx, now) => sweepBuckets(tx, Date.parse(now)),
]

/** Each sweep in transactions of its own: a failed one does not stop the others. */
export const deleteExpired = (storage: Storage, now: Instant): Promise<void> =>
  forEachSettled(
    [
      ...sweeps.map((one) => () => storage.write((tx) => one(tx, now))),
      () => sweepWindows(storage, Date.parse(now)),
    ],
    (sweep) => sweep(),
  )

function webhooksOf(parts: Dependencies, config: Config): Loop[] {
  const { storage, clock } = parts
  const deliveryWorker = new DeliveryWorker({
    ...parts,
    timeoutMs: config.webhookTimeoutMs,
    wake: () => rounds.wake(),
    onAttempt: (outcome) => parts.webhooks.add(outcome),
    onSpoiled: (what) =>
      parts.log.error({ ...what, err: what.error }, 'the result of a delivery cannot be stored'),
  })
  const tell = async () => {
    const now = clock()
    const { webhookIds, more, failure } = await fanOut(storage, now)
    if (webhookIds.length > 0) deliveryWorker.notify(webhookIds, now)
    if (more) events.wake()
    if (failure !== undefined) throw failure
  }
  // With serial writes both run sequentially in one loop: larger batches cost less per row.
  const isAlone = storage.traits.serialWrites
  const both = () => forEachSettled([() => deliveryWorker.round(), tell], (work) => work())
  const round = () => (isAlone ? both() : deliveryWorker.round())
  const rounds = loop('webhooks', round, 1000, parts)
  const events = isAlone ? rounds : loop('webhook events', tell, 1000, parts)
  storage.onCommit(rounds.wake, ['webhooks', 'webhook_deliveries', 'webhook_queues'])
  storage.onCommit(events.wake, ['events'])
  rounds.wake()
  events.wake()
  const stop = async () => {
    await Promise.all([rounds.stop(), events.stop()])
    await deliveryWorker.close()
  }
  return [
    { wake: rounds.wake, stop },
    loop('webhook upkeep', () => tidy(storage, config, clock()), 600_000, parts, { firstMs: 300_000 }),
  ]
}

function integrityOf(parts: Dependencies, { integrityCheckSeconds }: Config): Loop[] {
  if (integrityCheckSeconds === 0) return []
  const ending = new AbortController()
  const everyMs = integrityCheckSeconds * 1000
  const look = () => parts.integrity.look(ending.signal)
  const { wake, stop } = loop('database integrity', look, everyMs, parts, {
    firstMs: Math.min(everyMs, 60_000),
  })
  return [
    {
      wake,
      stop() {
        // The check may take minutes, and can be aborted.
        ending.abort()
        return stop()
      },
    },
  ]
}

/** The audit event of a password link that is mailed to a person. */
const resetRequested = ({ id, email }: User): AuditEvent => ({
  orgId: null,
  actorType: 'user',
  actorId: id,
  actorEmail: email,
  action: 'user.password.reset.requested',
  resourceType: 'user',
  resourceId: id,
  resourceName: email,
  details: {},
  ipAddress: null,
  userAgent: null,
  result: 'success',
})
