import { string } from '@oclif/core/flags'
import type { CommandView } from './command-view.ts'
import { usageError } from './exit-codes.ts'
import type { FlagSet } from './flags.ts'
import { durationSeconds } from './times.ts'

/** `--for 30m` for a field in minutes. */
export const durationFlags = (
  field: string,
  description: string,
): NonNullable<CommandView['customFlags']> => ({
  fields: [field],
  flags: { for: string({ description, helpValue: 'TIME' }) } as unknown as FlagSet,
  async values({ for: said }) {
    if (said === undefined) return {}
    const minutes = (durationSeconds(String(said)) ?? Number.NaN) / 60
    if (!Number.isInteger(minutes))
      throw usageError(`--for takes a duration such as 30m or 2h, not "${String(said)}"`)
    return { [field]: minutes }
  },
})
