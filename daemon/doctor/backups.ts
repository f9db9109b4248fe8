import { formatBytes } from '../../src/core/byte-size.ts'
import { type Finding, passed, warning } from '../../src/core/finding.ts'
import { addSeconds, type Instant } from '../../src/core/time.ts'
import type { Db } from '../../src/storage/open.ts'
import { findRun, nextRunDeadline, type RunKind } from '../backup/runs.ts'
import type { Config } from '../config.ts'

/* When the database was last backed up, and when a backup was last restored to see that it can be. */

/** After a scheduled run was expected to have succeeded. */
const graceSeconds = 3600

export async function checkBackups(
  db: Db,
  { backups: { schedule, target, drillSchedule, identityFile } }: Pick<Config, 'backups'>,
  now: Instant,
): Promise<Finding[]> {
  const out = target ?? 'DIR'
  const identity = identityFile === undefined ? '' : ` --identity ${identityFile}`
  return [
    ...(await check(db, now, {
      kind: 'backup',
      check: 'backup',
      setting: 'BACKUP_SCHEDULE',
      schedule,
      never: 'The database was never backed up.',
      reason: 'A lost disk loses everything since the last backup.',
      command: `svc db backup --out ${out}`,
    })),
    ...(await check(db, now, {
      kind: 'drill',
      check: 'restore drill',
      setting: 'DRILL_SCHEDULE',
      schedule: drillSchedule,
      never: 'No backup was ever restored to see that it can be.',
      reason: 'Whether a backup can be restored shows when it is restored.',
      command: `svc db drill ${out}${identity}`,
    })),
  ]
}

type What = {
  kind: RunKind
  check: string
  setting: string
  schedule: string | undefined
  never: string
  reason: string
  command: string
}

async function check(
  db: Db,
  now: Instant,
  { kind, check, setting, schedule, never, reason, command }: What,
): Promise<Finding[]> {
  const run = await findRun(db, kind)
  const { succeeded_at: at, failed_at: failedAt, failure } = run ?? {}
  const expected = schedule === undefined ? undefined : nextRunDeadline(schedule, run)
  const warn = (message: string, remedy: string) => [warning(check, { message, reason, remedy })]
  if (failedAt && (!at || failedAt > at)) {
    return warn(`The last one failed at ${failedAt}: ${failure}`, `mend that, then ${command}`)
  }
  if (expected !== undefined && addSeconds(expected, graceSeconds) < now) {
    return warn(
      `The one that was due at ${expected} by ${setting} has not succeeded.`,
      `${command}; see what the log of the service says about scheduled runs`,
    )
  }
  if (!at) return warn(never, schedule === undefined ? `${command}; ${setting} does it regularly` : command)
  return [
    passed(
      check,
      `${at}, ${formatBytes(run?.bytes ?? 0)}, in ${Math.ceil((run?.duration_ms ?? 0) / 1000)} s`,
    ),
  ]
}
