import { z } from 'zod'
import { safeParse } from '../../core/schema.ts'
import { readJson, replaceFile } from '../durable.ts'
import { CommandOutcome } from '../spool/records.ts'

const maxCommands = 200

const Memory = z.object({
  commands: z.array(z.object({ id: z.string(), outcome: CommandOutcome.optional() })),
})

/**
 * The commands that were started, and their outcomes: each is executed once, however often it is sent, and also if
 * the agent crashed during it.
 */
export function commandHistory(file: string) {
  let known = safeParse(Memory, readJson(file)).data?.commands ?? []

  function record(id: string, outcome?: CommandOutcome): void {
    known = [...known.filter((one) => one.id !== id), { id, outcome }].slice(-maxCommands)
    try {
      replaceFile(file, `${JSON.stringify({ commands: known })}\n`)
    } catch {
      // On a full disk the record lasts until the agent ends.
    }
  }

  return {
    begin: (id: string): void => record(id),
    end: (id: string, outcome: CommandOutcome): void => record(id, outcome),
    find: (id: string) => known.find((one) => one.id === id),
  }
}
export type CommandHistory = ReturnType<typeof commandHistory>
