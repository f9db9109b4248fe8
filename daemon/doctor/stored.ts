import { compareVersions, isFarBehind, isNewer } from '../../src/agents/versions/semver.ts'
import { findRelease, listPromoted } from '../../src/agents/versions/store.ts'
import { listFaults } from '../../src/audit/checkpoints/verdicts.ts'
import { type Finding, failed, passed, pluralize, warning } from '../../src/core/finding.ts'
import { systemScope } from '../../src/core/scope.ts'
import { addSeconds, type Instant } from '../../src/core/time.ts'
import { countExpiringApiKeys } from '../../src/credentials/api-keys/store.ts'
import { countAgentVersions, countDevices } from '../../src/devices/liveness.ts'
import { countDeadLetters, listLostDeadLetters } from '../../src/storage/dead-letters.ts'
import { findStrandedLeases } from '../../src/storage/leases.ts'
import type { Db } from '../../src/storage/open.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'
import { inScope } from '../../src/storage/query/scope.ts'
import { storedHours } from '../../src/webhooks/contract.ts'
import { toStoredStatus } from '../../src/webhooks/rules.ts'

/* What the rows show about the work of the service. Of all organizations, as totals. */

const day = 86_400

export async function checkAuditChains(db: Db, now: Instant): Promise<Finding[]> {
  const check = 'audit log'
  const faults = await listFaults(db)
  if (faults.length > 0) {
    const named = faults.slice(0, 5).map(({ chain, verdict }) => `${chain} (${verdict})`)
    const more = faults.length > 5 ? ` and ${faults.length - 5} more` : ''
    return [
      failed(check, {
        message: `${pluralize(faults.length, 'chain')} not sound: ${named.join(', ')}${more}.`,
        reason:
          'Entries were changed or removed after they were written, or cannot be compared with what was signed.',
        remedy: 'svc audit verify shows where; keep the database and checkpoints/ as they are',
      }),
    ]
  }
  const verdicts = db.selectFrom('audit_verdicts')
  const all = await countRowsOf(verdicts)
  const overdue = await countRowsOf(verdicts.where('checked_at', '<', addSeconds(now, -2 * day)))
  const { oldest } = await verdicts
    .select(({ fn }) => fn.min('checked_at').as('oldest'))
    .executeTakeFirstOrThrow()
  if (overdue > 0) {
    return [
      warning(check, {
        message: `${overdue} of ${pluralize(all, 'chain')} were not verified for two days or longer, one since ${oldest}.`,
        reason: 'The service verifies every chain once a day; a change of them would show late.',
        remedy: 'see whether the service runs, and what its log says about the loop audit verification',
      }),
    ]
  }
  return [
    passed(
      check,
      oldest === null ? 'Not verified yet' : `${pluralize(all, 'chain')} sound, verified since ${oldest}`,
    ),
  ]
}

/** Rows that wait for a service that is busy are gone within seconds. */
const stuckSeconds = 600

export async function checkQueues(db: Db, now: Instant): Promise<Finding[]> {
  const since = addSeconds(now, -stuckSeconds)
  const mails = await countRowsOf(db.selectFrom('mails').where('created_at', '<', since))
  const deliveries = await countRowsOf(db.selectFrom('webhook_queues').where('due_at', '<', since))
  const events = await countRowsOf(db.selectFrom('events').where('created_at', '<', since))
  const findings: Finding[] = []
  if (mails > 0) {
    findings.push(
      warning('mail', {
        message: `${pluralize(mails, 'mail')} could not be sent for ten minutes or longer.`,
        reason: 'Links in them expire, and people wait for them.',
        remedy: 'see the log of the service for the answer of the mail server, and SMTP_URL',
      }),
    )
  }
  if (deliveries > 0 || events > 0) {
    const waiting = [
      ...(deliveries > 0 ? [`the deliveries of ${pluralize(deliveries, 'webhook')}`] : []),
      ...(events > 0 ? [pluralize(events, 'event')] : []),
    ]
    findings.push(
      warning('webhooks', {
        message: `${waiting.join(' and ')} have been due for ten minutes or longer.`,
        reason: 'Nobody sends them: the service does not run, or is behind.',
        remedy: 'see whether the service runs, and what its log says about webhooks',
      }),
    )
  }
  return findings.length > 0 ? findings : [passed('queues', 'Nothing waits')]
}

/** On SQLite there are none. */
export async function checkLeases(db: Db, now: Instant): Promise<Finding[]> {
  const check = 'leases'
  const { stranded, isAnyHeld } = await findStrandedLeases(db, now)
  if (!isAnyHeld) return [passed(check, 'None is held: one process serves SQLite, or none serves now')]
  if (stranded.length === 0) return [passed(check, 'Each has a holder')]
  const named = stranded.map(({ name, since }) => `${name} (since ${since})`).join(', ')
  return [
    warning(check, {
      message: `No process has taken up this background work: ${named}.`,
      reason: 'The process that did it has ended or hangs, and a lock may keep the others from it.',
      remedy:
        'see what the log of the service says about the loop leases, and restart its processes one by one',
    }),
  ]
}

export async function checkWebhooks(db: Db): Promise<Finding[]> {
  const rows = await db
    .selectFrom('webhooks')
    .select(({ fn }) => ['status', fn.countAll<number>().as('count')])
    .where('deleted_at', 'is', null)
    .where(inScope(systemScope, 'webhooks.org_id'))
    .groupBy('status')
    .execute()
  const countIn = (status: string) => rows.find((one) => one.status === status)?.count ?? 0
  const failing = countIn(toStoredStatus('failed'))
  if (failing === 0) return [passed('webhooks', `${pluralize(countIn('active'), 'webhook')} active`)]
  return [
    warning('webhooks', {
      message: `${pluralize(failing, 'webhook')} failed too often.`,
      reason: `Nothing is sent to them; deliveries wait for ${storedHours} hours and are given up then.`,
      remedy: 'svc webhooks list --status failed; svc webhooks resume NAME once its receiver answers',
    }),
  ]
}

export async function checkDeadLetters(db: Db, now: Instant): Promise<Finding[]> {
  const check = 'dead letters'
  const kept = await countDeadLetters(db, '')
  // The count of those that were lost is kept for ever.
  const lost = (await listLostDeadLetters(db)).filter(({ last_at }) => last_at >= addSeconds(now, -7 * day))
  const findings = [
    ...kept.map(({ source, count }) =>
      warning(check, {
        message: `${pluralize(count, 'row')} could not be written to ${source}.`,
        reason: 'They are kept apart, so that they hold up no others, and are missing where they belong.',
        remedy: `svc dead-letters --source ${source}; then svc dead-letters retry or delete`,
      }),
    ),
    ...lost.map(({ source, count, reason }) =>
      failed(check, {
        message: `${pluralize(count, 'row')} of ${source} ${count === 1 ? 'was' : 'were'} lost (${reason}).`,
        reason: 'There were too many dead letters to keep them too.',
        remedy: 'svc dead-letters shows those that were kept: mend their cause, then retry them',
      }),
    ),
  ]
  return findings.length > 0 ? findings : [passed(check, 'None')]
}

/** Share of devices at which their silence has a cause in common. */
const manyOffline = 0.2
const few = 10

export async function checkDevices(db: Db, now: Instant): Promise<Finding[]> {
  const devices = (await countDevices(db, now)).filter(({ status }) => status !== 'decommissioned')
  const all = devices.reduce((sum, { count }) => sum + count, 0)
  const offline = devices.find(({ status }) => status === 'offline')?.count ?? 0
  if (all < few || offline < all * manyOffline) {
    return [passed('devices', `${pluralize(all, 'device')}, ${offline} offline`)]
  }
  return [
    warning('devices', {
      message: `${offline} of ${pluralize(all, 'device')} are offline.`,
      reason:
        'So many at once have a cause in common: the network, the certificate, or the address of the service.',
      remedy: 'svc devices list --status offline; compare PUBLIC_URL with what their agents use',
    }),
  ]
}

/** Versions behind which an agent has missed several releases. */
const maxMinorsBehind = 2

/** Of agents that are online: others cannot update now. */
export async function checkAgentVersions(db: Db): Promise<Finding[]> {
  const check = 'agents'
  const promoted = (await listPromoted(db)).filter(({ component }) => component === 'agent')
  const newest = promoted
    .map(({ version }) => version)
    .sort(compareVersions)
    .at(-1)
  if (newest === undefined) return [passed(check, 'No release is promoted')]
  const versions = await countAgentVersions(db)
  const all = versions.reduce((sum, { count }) => sum + count, 0)
  const sumOf = (is: (version: string) => boolean) =>
    versions.reduce((sum, { version, count }) => (is(version) ? sum + count : sum), 0)
  const older = sumOf((version) => isNewer(newest, version))
  const far = sumOf((version) => isFarBehind(version, newest, maxMinorsBehind))
  const oldest = (await findRelease(db, newest))?.min_from ?? undefined
  const stranded = oldest === undefined ? 0 : sumOf((version) => isNewer(oldest, version))
  if (far === 0 && stranded === 0)
    return [passed(check, `${pluralize(all, 'agent')} online, ${older} older than ${newest}, none by far`)]
  return [
    ...(far === 0
      ? []
      : [
          warning(check, {
            message: `${far} of ${pluralize(all, 'agent')} online are far behind ${newest}, which is promoted (${older} are older).`,
            reason: 'They lack what was mended since: their update fails, or is not allowed.',
            remedy:
              'svc devices list --json has their agentVersion; svc agent rollout start updates them in waves',
          }),
        ]),
    ...(stranded === 0
      ? []
      : [
          warning(check, {
            message: `${stranded} of ${pluralize(all, 'agent')} online are older than ${oldest}, the oldest that can update to ${newest}.`,
            reason:
              'They are offered a release between the two, and none where no such release is registered.',
            remedy: `svc agent sync-release registers the releases between; svc agent versions lists those that are there`,
          }),
        ]),
  ]
}

/** Time in which a key can be replaced without hurry. */
const soonSeconds = 14 * day

export async function checkKeyExpiry(db: Db, now: Instant): Promise<Finding[]> {
  const within = { after: now, until: addSeconds(now, soonSeconds) }
  const soon = await countExpiringApiKeys(db, systemScope, within)
  if (soon === 0) return [passed('API keys', 'None expires within 14 days')]
  return [
    warning('API keys', {
      message: `${pluralize(soon, 'API key')} ${soon === 1 ? 'expires' : 'expire'} within 14 days.`,
      reason: 'The scripts that use them are refused from then on.',
      remedy: 'svc keys list shows them; svc keys rotate KEY replaces one',
    }),
  ]
}
