import { string } from '@oclif/core/flags'
import type { CommandView } from './command-view.ts'
import { usageError } from './exit-codes.ts'
import type { FlagSet } from './flags.ts'
import { secondsPerUnit } from './times.ts'

/** `--for 30m` for a field in minutes. */
export const durationFlags = (
  field: string,
  description: string,
): NonNullable<CommandView['customFlags']> => ({
  fields: [field],
  flags: { for: string({ description, helpValue: 'TIME' }) } as unknown as FlagSet,
  async values({ for: said }) {
    if (said === undefined) return {}
    const [, count, unit] = /^(\d{1,5})([smhdw])$/.exec(String(said)) ?? []
    const minutes = count && unit ? (Number(count) * secondsPerUnit[unit]!) / 60 : Number.NaN
    if (!Number.isInteger(minutes))
      throw usageError(`--for takes a duration such as 30m or 2h, not "${String(said)}"`)
    return { [field]: minutes }
  },
})
