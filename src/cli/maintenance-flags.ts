import type { CommandView } from './command-view.ts'
import { usageError } from './exit-codes.ts'
import { booleanFlag, textFlag } from './flags.ts'
import { durationSeconds } from './times.ts'

const example = '--every "Sun 02:00" --for 2h --timezone Europe/Paris'

/** `--off`, and the recurring window: `--every "Sun 02:00" --for 2h`, or `--none`. */
export const maintenanceFlags: NonNullable<CommandView['customFlags']> = {
  fields: ['enable', 'window'],
  flagNames: {
    enable: 'off',
    window: 'every',
    'window.every': 'every',
    'window.durationMinutes': 'for',
    'window.timezone': 'timezone',
  },
  flags: {
    off: booleanFlag({ description: 'End maintenance now' }),
    every: textFlag(
      'Update the agent only in a window that recurs: days and local time, such as "Sun 02:00", "Mon-Fri 22:30" or "daily 03:00"',
      'TIME',
      ['off', 'hours', 'none'],
    ),
    for: textFlag('How long that window is open, such as 2h; at most 24h', 'TIME'),
    timezone: textFlag("IANA time zone of --every; by default that of the device's site, or UTC", 'ZONE'),
    none: booleanFlag({ description: 'Remove the window that recurs', exclusive: ['off', 'hours'] }),
  },
  async values({ off, every, for: duration, timezone, none }) {
    // The text null stands for the value.
    if (none) return { window: 'null' }
    if (every === undefined) {
      const [left] = Object.entries({ '--for': duration, '--timezone': timezone }).filter(([, said]) => said)
      if (left) throw usageError(`${left[0]} is about --every`, example)
      return { enable: !off }
    }
    if (duration === undefined) throw usageError('--every needs --for', example)
    const minutes = (durationSeconds(String(duration)) ?? Number.NaN) / 60
    if (!Number.isInteger(minutes))
      throw usageError(`--for takes a duration such as 30m or 2h, not "${String(duration)}"`)
    return { window: { every, durationMinutes: minutes, timezone } }
  },
}

type Shown = {
  maintenanceWindow?: { every: string; durationMinutes: number; timezone: string } | null
  nextWindow?: { opensAt: string; closesAt: string } | null
}

/** The window of a device on one line, if it has one. */
export function formatWindow({ maintenanceWindow: window, nextWindow: next }: Shown): string {
  if (!window) return ''
  const { every, durationMinutes, timezone } = window
  const duration = durationMinutes % 60 === 0 ? `${durationMinutes / 60}h` : `${durationMinutes}m`
  const when = next ? `next from ${next.opensAt} to ${next.closesAt}` : 'never open'
  return `Maintenance window: ${every} for ${duration}, ${timezone}; ${when}\n`
}
