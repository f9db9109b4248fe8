import type { Database } from 'better-sqlite3'
import type { TableName } from './schema/tables.ts'

/** Written to all the time, and never asked who may do what. */
export const tablesWithoutVersion: readonly TableName[] = [
  'agent_commands',
  'agent_logs',
  'alerts',
  'audit_heads',
  'audit_logs',
  'device_disks',
  'device_event_logs',
  'device_interfaces',
  'device_software',
  'devices',
  'enrollment_keys',
  'events',
  'idempotency_keys',
  'outbox',
  'set_aside',
  'set_aside_lost',
  'webhook_counts',
  'webhook_deliveries',
  'webhook_queues',
]

const isBeside: ReadonlySet<string> = new Set(tablesWithoutVersion)

/**
 * A number that changes with every commit that may decide about callers. Those of other processes, which any command
 * may be, are asked for once a turn of the event loop: all requests that a turn takes in were sent before it began.
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

  /** What this process has committed. */
  committed(touched: ReadonlySet<string>): void {
    for (const table of touched) {
      if (isBeside.has(table)) continue
      this.#version++
      return
    }
  }
}
