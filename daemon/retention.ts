import { deleteEndedRollouts } from '../src/agents/rollouts/retention.ts'
import { deleteUnneededReleases } from '../src/agents/versions/retention.ts'
import { deleteResolvedAlerts } from '../src/alerts/jobs.ts'
import { dropOldTiles, thinCheckpoints } from '../src/audit/checkpoints/retention.ts'
import { deleteEnded } from '../src/audit/deletions.ts'
import { forgetArchives } from '../src/audit/retention/archiving.ts'
import { deleteOldApplies } from '../src/configuration/history/jobs.ts'
import { addSeconds, type Instant } from '../src/core/time.ts'
import { endedApiKeys, endedEnrollmentKeys, noteRevoked } from '../src/credentials/ended-keys.ts'
import { deleteRetiredDevices } from '../src/devices/retention.ts'
import { removeDeletedScripts } from '../src/scripts/jobs.ts'
import { forEachSettled } from '../src/storage/bisect-writes.ts'
import type { Storage } from '../src/storage/open.ts'

type Job = (storage: Storage, before: Instant, now: Instant) => Promise<unknown>

const deleteEndedKeys: Job = (storage, before, now) =>
  forEachSettled(
    [
      () => noteRevoked(storage, now),
      () => deleteEnded(storage, 'api_key', endedApiKeys(storage, before), now),
      () => deleteEnded(storage, 'enrollment_key', endedEnrollmentKeys(storage, before), now),
    ],
    (step) => step(),
  )

/** In this order: a device that is gone needs neither its key nor its release. */
const jobs = {
  alerts: deleteResolvedAlerts,
  scripts: removeDeletedScripts,
  devices: deleteRetiredDevices,
  keys: deleteEndedKeys,
  rollouts: deleteEndedRollouts,
  releases: deleteUnneededReleases,
  checkpoints: thinCheckpoints,
  proofs: dropOldTiles,
  archives: forgetArchives,
  applies: deleteOldApplies,
} satisfies Record<string, Job>

/** Days that each kind of record is kept after it has ended; undefined: for ever. */
export type RecordDays = Record<keyof typeof jobs, number | undefined>

/** Deletes the records that ended longer ago, and gives their room back. Any number of processes may do so at once. */
export const deleteEndedRecords = (storage: Storage, days: RecordDays, now: Instant): Promise<void> =>
  forEachSettled(
    [
      ...Object.entries<Job>(jobs).map(([kind, job]) => async () => {
        const kept = days[kind as keyof RecordDays]
        if (kept !== undefined) await job(storage, addSeconds(now, -kept * 86_400), now)
      }),
      () => storage.giveSpaceBack(),
    ],
    (work) => work(),
  )
