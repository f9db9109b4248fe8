import { deleteEnded } from '../audit/deletions.ts'
import type { Instant } from '../core/time.ts'
import { deletionBatch } from '../storage/ended-records.ts'
import type { Storage } from '../storage/open.ts'

/** Deletes alerts that were resolved before a time. */
export const deleteResolvedAlerts = (storage: Storage, before: Instant, now: Instant): Promise<void> =>
  deleteEnded(
    storage,
    'alert',
    {
      find: (except) =>
        storage.read
          .selectFrom('alerts')
          .select('id')
          .where('resolved_at', 'is not', null)
          .where('resolved_at', '<', before)
          .$if(except.length > 0, (q) => q.where('id', 'not in', except))
          .orderBy('resolved_at')
          .limit(deletionBatch)
          .execute(),
      remove: (tx, ids) =>
        tx
          .deleteFrom('alerts')
          .where('id', 'in', ids)
          .where('resolved_at', '<', before)
          .returning(['id', 'org_id', 'title as name'])
          .execute(),
    },
    now,
  )
