import { deleteOldCommands, reapCommands } from '../src/agents/commands/jobs.ts'
import { trimOutputs } from '../src/agents/commands/output-quota.ts'
import { reconcileRollout } from '../src/agents/rollouts/jobs.ts'
import { sweepRotations } from '../src/agents/tokens/store.ts'
import { takeDueCheckpoints } from '../src/audit/checkpoints/due.ts'
import { verifyDue } from '../src/audit/checkpoints/verification.ts'
import { recordAudit, sealPending } from '../src/audit/outbox.ts'
import { pruneDue } from '../src/audit/retention/jobs.ts'
import { sweepReadings } from '../src/audit/retention/read-leases.ts'
import { type AuditEvent, toDraftEntry } from '../src/audit/rules.ts'
import { addSeconds, type Instant, secondsBetween } from '../src/core/time.ts'
import { sweepBuckets } from '../src/credentials/api-keys/usage.ts'
import { checkLiveness } from '../src/devices/jobs.ts'
import { refreshDueGroups } from '../src/groups/jobs.ts'
import { sweepChanges } from '../src/groups/members.ts'
import { sweepDeviceAuthorizations } from '../src/identity/device-authorization/store.ts'
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
import { scheduledRuns } from './backup/scheduled-runs.ts'
import type { Config } from './config.ts'
import type { Dependencies } from './dependencies.ts'
import { deleteOldAttempts } from './idempotency.ts'
import { LeasedLoops } from './leased-loops.ts'
import { type Loop, loop } from './loop.ts'
import { deleteEndedRecords } from './retention.ts'
import { sweepWindows } from './shared-windows.ts'
import { webhookLoops } from './webhook-loops.ts'

/** While the service was down no agent could report: agents get this time before they count as silent. */
const startSeconds = 90

/** The background loops. */
export function backgroundLoops(parts: Dependencies, config: Config): Loop[] {
  const { storage, limiter, meter, clock, log } = parts
  const soon = { firstMs: parts.firstRunMs }
  const leased = new LeasedLoops(parts)
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
  const limits = loop('rate limits', () => limiter.sweep(), 60_000, parts)
  const sweeper = leased.loop('sweeper', (fenced) => deleteExpired(fenced, clock()), 60_000)
  const secrets = loop('secrets', () => parts.secrets.look(), 5000, parts)
  parts.secrets.onAsked(secrets.wake)
  const aside = loop('set aside', () => parts.setAside.tell(), 10_000, parts)
  const counter = loop('key counter', () => meter.flush(clock()), 2000, parts)
  const since = clock()
  const grace = Math.min(config.offlineAfterSeconds, startSeconds)
  const watch = leased.loop(
    'device watch',
    async (fenced) => {
      if (secondsBetween(since, clock()) >= grace) await checkLiveness(fenced, config, clock())
    },
    10_000,
  )
  const grouper: Loop = loop(
    'device groups',
    async () => {
      if (await refreshDueGroups(parts)) grouper.wake()
    },
    15_000,
    parts,
  )
  const rollouts = leased.loop(
    'agent rollouts',
    async (fenced) => {
      const isJudging = secondsBetween(since, clock()) >= grace
      const on = { ...parts, ...config, storage: fenced }
      if (await reconcileRollout(on, { isJudging })) parts.rollouts.isStarted = false
    },
    15_000,
  )
  storage.onCommit(() => {
    if (parts.rollouts.isStarted) rollouts.wake()
  })
  let counted: string | undefined
  const forgetter = leased.loop(
    'old logs',
    async (fenced) => {
      await deleteOldLogs(fenced, config, clock())
      counted = await recountBytes(fenced, counted)
    },
    600_000,
    soon,
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
  const reaper = leased.loop('commands', (fenced) => reapCommands(fenced, parts.nudge, clock()), 15_000)
  const commands = leased.loop('old commands', (fenced) => deleteOldCommands(fenced, clock()), 600_000, soon)
  const { parts: checking } = parts.audit
  // Chains become due one by one, and those of a process that died within minutes.
  const checkpointMs = Math.min(config.checkpointSeconds * 1000, 60_000)
  const checkpoints: Loop = loop(
    'audit checkpoints',
    async () => {
      const restSeconds = config.checkpointSeconds
      if (await takeDueCheckpoints(checking, { restSeconds })) checkpoints.wake()
    },
    checkpointMs,
    parts,
    { firstMs: Math.min(checkpointMs, soon.firstMs), restMs: Math.min(checkpointMs, 1000) },
  )
  const verifier: Loop = loop(
    'audit verification',
    async () => {
      if (await verifyDue(checking)) verifier.wake()
    },
    60_000,
    parts,
    // Half of the time is left to others while many chains are due.
    { ...soon, restMs: 5000 },
  )
  const pruner: Loop = loop(
    'audit retention',
    async () => {
      if (config.auditRetentionOn && (await pruneDue({ ...parts, ...checking }))) pruner.wake()
    },
    600_000,
    parts,
    soon,
  )
  const records = leased.loop(
    'ended records',
    (fenced) => deleteEndedRecords(fenced, config.recordDays, clock()),
    3_600_000,
    soon,
  )
  return [
    sealer,
    postman,
    limits,
    sweeper,
    secrets,
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
    records,
    ...integrityOf(parts, config),
    ...webhookLoops(parts, config, leased),
    ...scheduledRuns(parts, config),
    leased.keeper(),
  ]
}

const sweeps: readonly ((tx: Db, now: Instant) => Promise<void>)[] = [
  sweepSessions,
  sweepDeviceAuthorizations,
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
  (tx, now) => sweepReadings(tx, addSeconds(now, -86_400)),
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
