import type { Database } from 'better-sqlite3'
import type { TableName } from './schema/tables.ts'

/** Written constantly, and never read to decide what a caller may do. */
export const tablesWithoutVersion: readonly TableName[] = [
  'agent_commands',
  'agent_logs',
  'alerts',
  'audit_heads',
  'audit_logs',
  'backup_runs',
  'backups',
  'device_disks',
  'device_event_logs',
  'device_interfaces',
  'device_software',
  'devices',
  'enrollment_keys',
  'events',
  'idempotency_keys',
  'outbox',
  'rate_limit_windows',
  'service_processes',
  'set_aside',
  'set_aside_lost',
  'webhook_counts',
  'webhook_deliveries',
  'webhook_queues',
]

const unversioned: ReadonlySet<string> = new Set(tablesWithoutVersion)

/**
 * A number that changes with every commit that may change what a caller is allowed to do. Commits of other processes,
 * which any command may make, are checked once per turn of the event loop: every request handled in a turn was sent
 * before it began.
 */
export class CommitVersion {
  readonly #commitsOfOthers
  #others: number | undefined
  #isAsked = false
  #version = 0

  constructor(writer: Database) {
    this.#commitsOfOthers = writer.prepare<[], number>('pragma data_version').pluck()
  }

  ask(): number {
    if (!this.#isAsked) {
      const others = this.#commitsOfOthers.get()
      if (others !== this.#others) this.#version++
      this.#others = others
      this.#isAsked = true
      setImmediate(() => {
        this.#isAsked = false
      })
    }
    return this.#version
  }

  /** Counts commits of this process. */
  committed(touched: ReadonlySet<string>): void {
    for (const table of touched) {
      if (unversioned.has(table)) continue
      this.#version++
      return
    }
  }
}
