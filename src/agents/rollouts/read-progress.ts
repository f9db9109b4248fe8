import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { RolloutProgress } from './contract.ts'
import { countOnVersion, listFailureReasons, tallyByWave } from './devices.ts'
import { toRolloutProgress } from './progress.ts'
import type { RolloutRecord } from './rules.ts'
import { readEligibleDevices } from './windows.ts'

const maxReasons = 5

/** Counts every device of the rollout: on a connection for long reads. */
export const readProgress = async (db: Db, rollout: RolloutRecord, now: Instant): Promise<RolloutProgress> =>
  toRolloutProgress(rollout, {
    tally: await tallyByWave(db, rollout.id),
    onVersion: await countOnVersion(db, rollout),
    eligible: await readEligibleDevices(db, rollout, now),
    reasons: await listFailureReasons(db, rollout.id, maxReasons),
    now,
  })
