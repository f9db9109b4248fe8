import { Counter, Gauge, Registry } from 'prom-client'
import type { Storage } from '../../src/storage/open.ts'
import type { StoredMetrics } from '../metrics.ts'
import { findRun, nextRunDeadline, type RunKind } from './runs.ts'
import type { BackupSettings } from './settings.ts'

/** Metrics of backups and restore drills, of all processes and commands. */
export function backupMetrics(
  storage: Pick<Storage, 'read'>,
  { schedule, drillSchedule }: Pick<BackupSettings, 'schedule' | 'drillSchedule'>,
): StoredMetrics {
  const registry = new Registry()
  const refreshes = [
    watchRuns(registry, 'backup', 'backup', schedule, storage),
    watchRuns(registry, 'drill', 'restore drill', drillSchedule, storage),
  ]
  return {
    registry,
    async refresh() {
      for (const refresh of refreshes) await refresh()
    },
  }
}

function watchRuns(
  registry: Registry,
  kind: RunKind,
  what: string,
  schedule: string | undefined,
  { read }: Pick<Storage, 'read'>,
): () => Promise<void> {
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `svc_${kind}_${name}`, help, registers: [registry] })
  const succeeded = gauge(
    'last_success_timestamp_seconds',
    `When the last ${what} that succeeded was made; 0: none yet.`,
  )
  const failed = gauge('last_failure_timestamp_seconds', `When a ${what} last failed; 0: none has.`)
  const took = gauge('last_duration_seconds', `Duration of the last ${what} that succeeded.`)
  const bytes = gauge('last_size_bytes', `Size of the archive of the last ${what} that succeeded.`)
  const expected = gauge(
    'expected_timestamp_seconds',
    `When the next ${what} should have succeeded; 0: none is scheduled.`,
  )
  const failures = new Counter({
    name: `svc_${kind}_failures_total`,
    help: `Failures: a scheduled ${what}, or any restore drill.`,
    registers: [registry],
  })
  const at = (instant: string | null | undefined) => (instant ? Date.parse(instant) / 1000 : 0)
  return async () => {
    const run = await findRun(read, kind)
    succeeded.set(at(run?.succeeded_at))
    failed.set(at(run?.failed_at))
    took.set((run?.duration_ms ?? 0) / 1000)
    bytes.set(run?.bytes ?? 0)
    expected.set(schedule === undefined ? 0 : at(nextRunDeadline(schedule, run)))
    failures.reset()
    failures.inc(run?.failures ?? 0)
  }
}
