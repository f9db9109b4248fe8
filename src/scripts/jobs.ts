import { deleteEnded } from '../audit/deletions.ts'
import type { Instant } from '../core/time.ts'
import { deletionBatch } from '../storage/ended-records.ts'
import type { Storage } from '../storage/open.ts'

/** Removes scripts that people deleted before a time: until then they are only hidden. */
export const removeDeletedScripts = (storage: Storage, before: Instant, now: Instant): Promise<void> =>
  deleteEnded(
    storage,
    'script',
    {
      find: (except) =>
        storage.heavy
          .selectFrom('scripts')
          .select('id')
          .where('deleted_at', '<', before)
          .$if(except.length > 0, (q) => q.where('id', 'not in', except))
          .limit(deletionBatch)
          .execute(),
      remove: (tx, ids) =>
        tx
          .deleteFrom('scripts')
          .where('id', 'in', ids)
          .where('deleted_at', '<', before)
          .returning(['id', 'org_id', 'name'])
          .execute(),
    },
    now,
  )
