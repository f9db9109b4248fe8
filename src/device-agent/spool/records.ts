import { z } from 'zod'
import { parseJson } from '../../core/json.ts'
import { safeParse } from '../../core/schema.ts'
import type { NewDiagnosticLog } from '../../logs/diagnostic/contract.ts'

/** The outcome of a command in the form reported to the service. */
export const CommandOutcome = z.looseObject({
  status: z.enum(['completed', 'failed', 'timeout']),
  result: z.unknown().optional(),
  error: z.string().optional(),
})
export type CommandOutcome = z.output<typeof CommandOutcome> & { durationMs?: number; startedAt?: string }

/** The outcome of an update that did not succeed. */
export const UpdateOutcome = z.object({
  targetVersion: z.string(),
  state: z.enum(['failed', 'refused', 'rolled_back']),
  reason: z.string(),
})
export type UpdateOutcome = z.output<typeof UpdateOutcome>

/** A line of the spool. */
const SpoolRecord = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('diagnostic'),
    log: z.custom<NewDiagnosticLog>((log) => log instanceof Object),
  }),
  z.object({ kind: z.literal('result'), commandId: z.string(), outcome: CommandOutcome }),
  z.object({ kind: z.literal('update'), outcome: UpdateOutcome }),
])
export type SpoolRecord = z.output<typeof SpoolRecord>

/** undefined for an incomplete line, or one that another version wrote. */
export const parseRecord = (line: string): SpoolRecord | undefined =>
  safeParse(SpoolRecord, parseJson(line)).data
