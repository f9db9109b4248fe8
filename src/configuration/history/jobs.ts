import { deleteEnded } from '../../audit/deletions.ts'
import type { Instant } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'

/** Each has up to a thousand changes. */
const batch = 5

/** Removes what was applied before a time, with the values that a rollback needs. */
export const deleteOldApplies = (storage: Storage, before: Instant, now: Instant): Promise<void> =>
  deleteEnded(
    storage,
    'configuration_apply',
    {
      batch,
      find: (except) =>
        storage.heavy
          .selectFrom('config_applies')
          .select('id')
          .where('applied_at', '<', before)
          .$if(except.length > 0, (q) => q.where('id', 'not in', except))
          .limit(batch)
          .execute(),
      remove: (tx, ids) =>
        tx
          .deleteFrom('config_applies')
          .where('id', 'in', ids)
          .where('applied_at', '<', before)
          .returning(['id', 'org_id', 'set_name as name'])
          .execute(),
    },
    now,
  )
