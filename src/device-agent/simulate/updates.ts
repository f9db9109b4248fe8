import type { FailureMode, Plan } from './plan.ts'
import { seededRandom } from './seeded-random.ts'

/** The steps of an agent after it was offered a version. */
export type UpdateStep =
  | { do: 'say'; state: 'updating' | 'refused' | 'rolled_back'; reason?: string }
  /** Offline, as during a restart. */
  | { do: 'wait'; ms: number }
  /** Comes back, and reports immediately. */
  | { do: 'report'; version: string }
  /** Stays silent for ever. */
  | { do: 'vanish' }

/** Factor of the duration of a slow update. */
const slowness = 20

/** The failure mode of an agent's updates: always the same for a seed and a number. */
export function failureModeOf(
  { seed, failures }: Pick<Plan, 'seed' | 'failures'>,
  n: number,
): FailureMode | undefined {
  let left = seededRandom(seed, n, 'fate')
  for (const [mode, share] of failures) {
    left -= share
    if (left < 0) return mode
  }
  return undefined
}

/** An update takes `updateMs`, up to a fifth more or less. */
export function updateSteps(
  fate: FailureMode | undefined,
  { from, to, updateMs }: { from: string; to: string; updateMs: number },
  chance: number,
): UpdateStep[] {
  if (fate === 'refuse') return [{ do: 'say', state: 'refused', reason: 'Simulated: takes no updates' }]
  const ms = updateMs * (0.8 + 0.4 * chance) * (fate === 'slow' ? slowness : 1)
  const begin: UpdateStep[] = [
    { do: 'say', state: 'updating' },
    { do: 'wait', ms },
  ]
  switch (fate) {
    case 'silent':
      return [begin[0]!, { do: 'vanish' }]
    case 'crash':
      return [
        ...begin,
        { do: 'say', state: 'rolled_back', reason: `Simulated: ${to} does not start` },
        { do: 'report', version: from },
      ]
    case 'wrong':
      return [...begin, { do: 'report', version: `${to}${to.includes('-') ? '.' : '-'}wrong` }]
    default:
      return [...begin, { do: 'report', version: to }]
  }
}
