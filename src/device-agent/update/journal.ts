import { join } from 'node:path'
import { z } from 'zod'
import { safeParse } from '../../core/schema.ts'
import { readJson, replaceFile } from '../durable.ts'

const hour = 3_600_000

/**
 * An update that is under way. `staged`: verified, and beside the present binary. `trying`: it runs, and the present one
 * is where it was. `installing`: it proved itself, and takes the place of the present one. `restoring`: the backup does.
 */
const PendingUpdate = z.object({
  state: z.enum(['staged', 'trying', 'installing', 'restoring']),
  version: z.string(),
  /** The version that goes. */
  from: z.string(),
  sha256: z.string(),
  /** How often it was begun to be tried. */
  tries: z.number().default(0),
  /** The process that runs it. */
  pid: z.number().optional(),
  /** Why it is restored. */
  reason: z.string().optional(),
})
export type PendingUpdate = z.output<typeof PendingUpdate>

const Journal = z.object({
  pending: PendingUpdate.optional(),
  /** The binary before this one, in svc-agent.backup. `spent`: it was put back once already. */
  backup: z.object({ version: z.string(), sha256: z.string(), spent: z.boolean().default(false) }).optional(),
  /** How often that version was begun to be got, whatever became of it. */
  begun: z.object({ version: z.string(), count: z.number() }).optional(),
  /** Versions that did not come through, and when by the clock of this machine. */
  failed: z.record(z.string(), z.object({ at: z.string(), reason: z.string() })).default({}),
})
export type Journal = z.output<typeof Journal>

/** What an update left behind wherever it was ended, in update.json: on the disk before the next step is taken. */
export function openUpdateJournal(stateDir: string) {
  const file = join(stateDir, 'update.json')
  const load = (): Journal => safeParse(Journal, readJson(file)).data ?? { failed: {} }
  const save = (journal: Journal): void => replaceFile(file, `${JSON.stringify(journal, null, 2)}\n`)
  return {
    backupFile: join(stateDir, 'svc-agent.backup'),
    load,
    /** @throws when it cannot be written */
    change: (change: Partial<Journal>): void => save({ ...load(), ...change }),
    /** How often that version was begun with this time. @throws when it cannot be written */
    begin(version: string): number {
      const { begun, ...journal } = load()
      const count = (begun?.version === version ? begun.count : 0) + 1
      save({ ...journal, begun: { version, count } })
      return count
    },
    /** Ends what is under way. @throws when it cannot be written */
    fail(version: string, reason: string, now: Date): void {
      const { pending: _, begun: __, ...journal } = load()
      const others = Object.entries(journal.failed).filter(([one]) => one !== version)
      const failed = Object.fromEntries([...others.slice(-9), [version, { at: now.toISOString(), reason }]])
      save({ ...journal, failed })
    },
    /** Whether that version failed within the hour; a clock that was put back says nothing. */
    failedRecently(version: string, now: Date): boolean {
      const { [version]: failure } = load().failed
      const age = failure ? now.getTime() - Date.parse(failure.at) : Number.NaN
      return age >= 0 && age < hour
    },
  }
}
export type UpdateJournal = ReturnType<typeof openUpdateJournal>
