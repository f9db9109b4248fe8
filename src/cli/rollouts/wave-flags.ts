import { string } from '@oclif/core/flags'
import type { NewWave } from '../../agents/rollouts/contract.ts'
import type { CommandContext } from '../base.ts'
import type { CommandView } from '../command-view.ts'
import { usageError } from '../exit-codes.ts'
import type { FlagSet } from '../flags.ts'
import { durationSeconds } from '../times.ts'

/** `--wave 10%` and the like, in place of the fields of a new rollout. */
export const waveFlags: NonNullable<CommandView['customFlags']> = {
  fields: ['waves', 'gateMinutes', 'soakMinutes', 'maxFailurePercent'],
  flagNames: { gateMinutes: 'gate', soakMinutes: 'soak', maxFailurePercent: 'max-failures' },
  flags: {
    wave: string({
      description:
        '(required) A wave: up to this part of all devices (10%), or the devices of a filter (filter:NAME); repeat it for each wave',
      helpValue: 'WAVE',
      multiple: true,
      multipleNonGreedy: true,
    }),
    gate: string({
      description: 'Time for a device to report the offered version; by default 15m',
      helpValue: 'TIME',
    }),
    soak: string({
      description: 'Time that updated devices have to stay alive before the next wave; by default 10m',
      helpValue: 'TIME',
    }),
    'max-failures': string({
      description: 'Halt when more than this part of a wave has failed; by default 5%',
      helpValue: 'PERCENT',
    }),
  } as unknown as FlagSet,
  async values({ wave, gate, soak, 'max-failures': maxFailures }, session) {
    if (wave === undefined) throw usageError('Missing --wave', '--wave 1% --wave 10% --wave 100%')
    const waves: NewWave[] = []
    for (const said of wave as string[]) waves.push(await waveOf(said, session))
    return {
      waves,
      gateMinutes: minutesOf(gate, '--gate'),
      soakMinutes: minutesOf(soak, '--soak'),
      maxFailurePercent:
        maxFailures === undefined ? undefined : percentOf(String(maxFailures), '--max-failures'),
    }
  },
}

const filterPrefix = 'filter:'

async function waveOf(said: string, session: CommandContext): Promise<NewWave> {
  if (!said.startsWith(filterPrefix)) return { percent: percentOf(said, '--wave') }
  const { resolveWithinOrg } = await import('../current-org.ts')
  return { filterId: await resolveWithinOrg(session, 'filter', said.slice(filterPrefix.length)) }
}

function percentOf(said: string, flag: string): number {
  const [, number] = /^(\d{1,3}(?:\.\d{1,2})?)%$/.exec(said) ?? []
  if (number !== undefined) return Number(number)
  const or = flag === '--wave' ? ' or a filter such as filter:Pilots' : ''
  throw usageError(`${flag} takes a percentage such as 10%${or}, not "${said}"`)
}

function minutesOf(said: unknown, flag: string): number | undefined {
  if (said === undefined) return undefined
  const minutes = (durationSeconds(String(said)) ?? Number.NaN) / 60
  if (Number.isInteger(minutes)) return minutes
  throw usageError(`${flag} takes a duration in minutes or hours such as 15m or 2h, not "${String(said)}"`)
}
