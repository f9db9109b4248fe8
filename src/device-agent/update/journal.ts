import { join } from 'node:path'
import { z } from 'zod'
import { safeParse } from '../../core/schema.ts'
import { readJson, replaceFile } from '../durable.ts'

const hour = 3_600_000

/**
 * An update in progress. `staged`: verified, beside the present binary. `trying`: running on trial, the present
 * binary is untouched. `installing`: the trial succeeded, it replaces the present binary. `restoring`: the backup
 * replaces it.
 */
const PendingUpdate = z.object({
  state: z.enum(['staged', 'trying', 'installing', 'restoring']),
  version: z.string(),
  /** The version being replaced. */
  from: z.string(),
  sha256: z.string(),
  /** Number of trials started. */
  tries: z.number().default(0),
  /** The process on trial. */
  pid: z.number().optional(),
  /** The reason for restoring. */
  reason: z.string().optional(),
})
export type PendingUpdate = z.output<typeof PendingUpdate>

const Journal = z.object({
  pending: PendingUpdate.optional(),
  /** The previous binary, in svc-agent.backup. `spent`: it was already restored once. */
  backup: z.object({ version: z.string(), sha256: z.string(), spent: z.boolean().default(false) }).optional(),
  /** Number of attempts to download that version. */
  begun: z.object({ version: z.string(), count: z.number() }).optional(),
  /** Versions whose update failed, with the time by this machine's clock. */
  failed: z.record(z.string(), z.object({ at: z.string(), reason: z.string() })).default({}),
})
export type Journal = z.output<typeof Journal>

/** Progress of updates in update.json, so that a restart can continue: each state is on disk before the next step. */
export function openUpdateJournal(stateDir: string) {
  const file = join(stateDir, 'update.json')
  const load = (): Journal => safeParse(Journal, readJson(file)).data ?? { failed: {} }
  const save = (journal: Journal): void => replaceFile(file, `${JSON.stringify(journal, null, 2)}\n`)
  return {
    backupFile: join(stateDir, 'svc-agent.backup'),
    load,
    /** @throws when it cannot be written */
    change: (change: Partial<Journal>): void => save({ ...load(), ...change }),
    /** Counts an attempt; returns the number of attempts for that version. @throws when it cannot be written */
    begin(version: string): number {
      const { begun, ...journal } = load()
      const count = (begun?.version === version ? begun.count : 0) + 1
      save({ ...journal, begun: { version, count } })
      return count
    },
    /** Ends the update in progress as failed. @throws when it cannot be written */
    fail(version: string, reason: string, now: Date): void {
      const { pending: _, begun: __, ...journal } = load()
      const others = Object.entries(journal.failed).filter(([one]) => one !== version)
      const failed = Object.fromEntries([...others.slice(-9), [version, { at: now.toISOString(), reason }]])
      save({ ...journal, failed })
    },
    /** Whether that version failed within the last hour; false if the clock was set back. */
    failedRecently(version: string, now: Date): boolean {
      const { [version]: failure } = load().failed
      const age = failure ? now.getTime() - Date.parse(failure.at) : Number.NaN
      return age >= 0 && age < hour
    },
  }
}
export type UpdateJournal = ReturnType<typeof openUpdateJournal>
