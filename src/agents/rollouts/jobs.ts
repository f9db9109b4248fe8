import type { Clock } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import { advanceRollout } from './advance.ts'
import { assignDevices } from './assignment.ts'
import { findActiveRollout } from './store.ts'

type On = { storage: Storage; clock: Clock; offlineAfterSeconds: number }

/**
 * Advances the active rollout; false when there is none. While the service was down agents could not report: they are
 * not judged until they have had time to.
 */
export async function reconcileRollout(on: On, { isJudging = true } = {}): Promise<boolean> {
  const rollout = await findActiveRollout(on.storage.read)
  if (rollout?.status === 'preparing') await assignDevices(on, rollout)
  else if (rollout && isJudging) await advanceRollout(on, rollout)
  return rollout !== undefined
}
