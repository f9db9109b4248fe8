import { string } from '@oclif/core/flags'
import { usage } from './exit.ts'
import type { FlagSet } from './flags.ts'
import { secondsIn } from './times.ts'
import type { View } from './view.ts'

/** `--for 30m` in place of a field that holds minutes. */
export const forMinutes = (field: string, description: string): NonNullable<View['instead']> => ({
  fields: [field],
  flags: { for: string({ description, helpValue: 'TIME' }) } as unknown as FlagSet,
  async values({ for: said }) {
    if (said === undefined) return {}
    const [, count, unit] = /^(\d{1,5})([smhdw])$/.exec(String(said)) ?? []
    const minutes = count && unit ? (Number(count) * secondsIn[unit]!) / 60 : Number.NaN
    if (!Number.isInteger(minutes)) throw usage(`--for takes a time such as 30m or 2h, not "${String(said)}"`)
    return { [field]: minutes }
  },
})
