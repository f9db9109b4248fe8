import type { Clock } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import { advance } from './advancing.ts'
import { draw } from './drawing.ts'
import { findUnderWay } from './store.ts'

type On = { storage: Storage; clock: Clock; offlineAfterSeconds: number }

/**
 * Brings the rollout that is under way as far as it can be; false when there is none. While the service was down nobody
 * could report: until agents have had time to, they are not judged.
 */
export async function goRound(on: On, { isJudging = true } = {}): Promise<boolean> {
  const rollout = await findUnderWay(on.storage.read)
  if (rollout?.status === 'preparing') await draw(on, rollout)
  else if (rollout && isJudging) await advance(on, rollout)
  return rollout !== undefined
}
