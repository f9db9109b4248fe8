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
import { type Loop, loop } from './loop.ts'
import { Loops } from './loops.ts'
import { deleteEndedRecords } from './retention.ts'
import { sweepWindows } from './shared-windows.ts'
import { webhookLoops } from './webhook-loops.ts'

/** While the service was down no agent could report: agents get this time before they count as silent. */
const startSeconds = 90

/** The background loops. */
export function backgroundLoops(parts: Dependencies, config: Config): Loop[] {
  const loops = new Loops(parts)
  for (const start of [
    auditLoops,
    mailLoops,
    processLoops,
    deviceLoops,
    agentLoops,
    quotaLoops,
    deletionLoops,
    integrityLoop,
    webhookLoops,
  ])
    start(loops, parts, config)
  for (const run of scheduledRuns(parts, config)) loops.add(run)
  return loops.all()
}

function auditLoops(loops: Loops, parts: Dependencies, config: Config): void {
  const { storage, clock } = parts
  const { parts: checking } = parts.audit
  const soon = { firstMs: parts.firstRunMs }
  const seal = async () => {
    const [failure] = await sealPending(storage, clock)
    if (failure !== undefined) throw failure
  }
  const sealer = loops.local('sealer', seal, 2000, { restMs: 25 })
  if (!storage.traits.serialWrites) storage.onCommit(sealer.wake)
  sealer.wake()
  // Chains become due one by one, and those of a process that died within minutes.
  const checkpointMs = Math.min(config.checkpointSeconds * 1000, 60_000)
  const checkpoints: Loop = loops.local(
    'audit checkpoints',
    async () => {
      const restSeconds = config.checkpointSeconds
      if (await takeDueCheckpoints(checking, { restSeconds })) checkpoints.wake()
    },
    checkpointMs,
    { firstMs: Math.min(checkpointMs, soon.firstMs), restMs: Math.min(checkpointMs, 1000) },
  )
  const verifier: Loop = loops.local(
    'audit verification',
    async () => {
      if (await verifyDue(checking)) verifier.wake()
    },
    60_000,
    // Half of the time is left to others while many chains are due.
    { ...soon, restMs: 5000 },
  )
  const pruner: Loop = loops.local(
    'audit retention',
    async () => {
      if (config.auditRetentionOn && (await pruneDue({ ...parts, ...checking }))) pruner.wake()
    },
    600_000,
    soon,
  )
}

/** Mail is rare: it waits a second instead of a query after every commit. */
function mailLoops(loops: Loops, parts: Dependencies): void {
  const onFailure = (failure: MailFailure) => parts.log.warn(failure, 'a mail could not be sent')
  const onIssued = (tx: Db, user: User, now: string) =>
    recordAudit(tx, toDraftEntry(resetRequested(user), now))
  const issueLinks = () => issueResets({ ...parts, onIssued })
  const sendLetters = async () => {
    if (await sendDueMails({ ...parts, onFailure })) postman.wake()
  }
  const postman: Loop = loops.local(
    'postman',
    async () => {
      await forEachSettled([issueLinks, sendLetters], (work) => work())
    },
    1000,
  )
  postman.wake()
}

/** What a process keeps in memory, and what it writes of that. */
function processLoops(loops: Loops, parts: Dependencies): void {
  const { storage, limiter, meter, clock } = parts
  const late = { firstMs: 600_000 }
  loops.local('rate limits', () => limiter.sweep(), 60_000)
  const secrets = loops.local('secrets', () => parts.secrets.poll(), 5000)
  parts.secrets.onReloadRequested(secrets.wake)
  loops.local('set aside', () => parts.setAside.logNew(), 10_000)
  loops.local('key counter', () => meter.flush(clock()), 2000)
  loops.local('agent entries', () => parts.agentEntries.write(storage, clock()), 600_000, late)
  loops.local('agent events', () => parts.agentEvents.write(storage, clock()), 600_000, late)
}

function deviceLoops(loops: Loops, parts: Dependencies, config: Config): void {
  const { storage, clock } = parts
  const since = clock()
  const grace = Math.min(config.offlineAfterSeconds, startSeconds)
  const mayJudge = () => secondsBetween(since, clock()) >= grace
  loops.leased(
    'device watch',
    async (fenced) => {
      if (mayJudge()) await checkLiveness(fenced, config, clock())
    },
    10_000,
  )
  const grouper: Loop = loops.local(
    'device groups',
    async () => {
      if (await refreshDueGroups(parts)) grouper.wake()
    },
    15_000,
  )
  const rollouts = loops.leased(
    'agent rollouts',
    async (fenced) => {
      const on = { ...parts, ...config, storage: fenced }
      if (await reconcileRollout(on, { isJudging: mayJudge() })) parts.rollouts.isStarted = false
    },
    15_000,
  )
  storage.onCommit(() => {
    if (parts.rollouts.isStarted) rollouts.wake()
  })
}

function agentLoops(loops: Loops, { nudge, clock, firstRunMs }: Dependencies): void {
  loops.leased('commands', (fenced) => reapCommands(fenced, nudge, clock()), 15_000)
  loops.leased('old commands', (fenced) => deleteOldCommands(fenced, clock()), 600_000, {
    firstMs: firstRunMs,
  })
}

/** They delete the oldest where a quota is full, shortly after the transaction that fills it is committed. */
function quotaLoops(loops: Loops, parts: Dependencies): void {
  const { storage, clock } = parts
  const room = loops.local(
    'room for logs',
    async () => parts.logs.hold(await enforceQuotas(storage, parts.logQuota)),
    60_000,
    { restMs: 2000 },
  )
  parts.logQuota.onFull(() => setTimeout(room.wake, 250).unref())
  const outputs = loops.local(
    'room for outputs',
    async () => parts.outputs.hold(await trimOutputs(storage, parts.commandQuota, clock())),
    60_000,
    { restMs: 2000 },
  )
  parts.commandQuota.onFull(() => setTimeout(outputs.wake, 250).unref())
}

function deletionLoops(loops: Loops, { clock, firstRunMs }: Dependencies, config: Config): void {
  const soon = { firstMs: firstRunMs }
  loops.leased('sweeper', (fenced) => deleteExpired(fenced, clock()), 60_000)
  let counted: string | undefined
  loops.leased(
    'old logs',
    async (fenced) => {
      await deleteOldLogs(fenced, config, clock())
      counted = await recountBytes(fenced, counted)
    },
    600_000,
    soon,
  )
  loops.leased(
    'ended records',
    (fenced) => deleteEndedRecords(fenced, config.recordDays, clock()),
    3_600_000,
    soon,
  )
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

function integrityLoop(loops: Loops, parts: Dependencies, { integrityCheckSeconds }: Config): void {
  if (integrityCheckSeconds === 0) return
  const ending = new AbortController()
  const everyMs = integrityCheckSeconds * 1000
  const look = () => parts.integrity.look(ending.signal)
  const { wake, stop } = loop('database integrity', look, everyMs, parts, {
    firstMs: Math.min(everyMs, 60_000),
  })
  loops.add({
    wake,
    stop() {
      // The check may take minutes, and can be aborted.
      ending.abort()
      return stop()
    },
  })
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
