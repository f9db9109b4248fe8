import { addSeconds, type Instant } from '../../core/time.ts'

const day = 86_400

/** The actions by which a chain records its own retention. */
export const retentionActions = {
  change: 'audit.retention.update',
  run: 'audit.retention.run',
  hold: 'audit.hold.set',
  release: 'audit.hold.release',
} as const

export type Hold = { reason: string; userId: string | null; userEmail: string | null; since: Instant }

export type RetentionPolicy = {
  retentionDays: number
  archiveToS3: boolean
  lastCleanupAt: Instant | null
  hold: Hold | null
  lastError: { message: string; at: Instant; retryAt: Instant | null } | null
  failures: number
}

/** Policy of a chain that has none of its own. */
export const defaultPolicy: RetentionPolicy = {
  retentionDays: 365,
  archiveToS3: false,
  lastCleanupAt: null,
  hold: null,
  lastError: null,
  failures: 0,
}

/** Older entries may be deleted. An entry exactly at the cutoff stays. */
export const cutoffOf = ({ retentionDays }: Pick<RetentionPolicy, 'retentionDays'>, now: Instant): Instant =>
  addSeconds(now, -retentionDays * day)

/** Retention runs for each chain once a day. */
export const runIntervalSeconds = day

/** A failed run is retried after 10, 20, 40 … minutes, once a day at the latest. */
export const retryAt = (failures: number, now: Instant): Instant =>
  addSeconds(now, Math.min(600 * 2 ** Math.min(failures, 10), day))

/** `<chain>/<first>-<last>.ndjson.gz`: sorted by name, the objects are in the order of the chain. */
export function archiveKey(chain: string, first: number, last: number): string {
  const [from, to] = [first, last].map((seq) => String(seq).padStart(12, '0'))
  return `${chain}/${from}-${to}.ndjson.gz`
}

/** How many seconds ahead of its own clock a process writes a time: of a retry, or of the end of a lease. */
export const maxAheadSeconds = { retry: day, lease: 60, reading: 60 } as const

/** The settings of a policy that go into the audit log. */
export const toAuditedPolicy = ({ retentionDays, archiveToS3 }: RetentionPolicy) => ({
  retentionDays,
  archiveToS3,
})
