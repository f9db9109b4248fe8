import type { FailureMode, Plan } from './plan.ts'
import { seededRandom } from './seeded-random.ts'

/** What an agent does with a version it is offered, one after the other. */
export type UpdateStep =
  | { do: 'say'; state: 'updating' | 'refused' | 'rolled_back'; reason?: string }
  /** Away, as while it is replaced. */
  | { do: 'wait'; ms: number }
  /** It comes back, and reports at once. */
  | { do: 'report'; version: string }
  /** Nothing is heard of it any more. */
  | { do: 'vanish' }

/** How many times as long an update takes that is slow. */
const slowness = 20

/** What becomes of the updates of an agent: always the same for a seed and a number. */
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
