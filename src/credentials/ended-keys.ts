import type { ExpressionBuilder } from 'kysely'
import type { Instant } from '../core/time.ts'
import { writeInChunks } from '../storage/bisect-writes.ts'
import { deletionBatch, type EndedRecords } from '../storage/ended-records.ts'
import type { Storage } from '../storage/open.ts'
import type { Tables } from '../storage/schema/tables.ts'

/** A revoked key has no time of its own: it counts from when this first finds it revoked. */
export const noteRevoked = (storage: Storage, now: Instant): Promise<void> =>
  writeInChunks(
    storage,
    (except) =>
      storage.heavy
        .selectFrom('api_keys')
        .select('id')
        .where('status', '=', 'revoked')
        .where('revoked_at', 'is', null)
        .$if(except.length > 0, (q) => q.where('id', 'not in', except))
        .limit(deletionBatch)
        .execute(),
    (tx, ids) => tx.updateTable('api_keys').set({ revoked_at: now }).where('id', 'in', ids).execute(),
    deletionBatch,
  )

const isEndedApiKey = (before: Instant) => (eb: ExpressionBuilder<Tables, 'api_keys'>) =>
  eb.or([
    eb('expires_at', '<', before),
    eb.and([eb('status', '=', 'revoked'), eb('revoked_at', '<', before)]),
  ])

/** API keys that were revoked or have expired before a time. */
export const endedApiKeys = ({ heavy }: Storage, before: Instant): EndedRecords => ({
  find: (except) =>
    heavy
      .selectFrom('api_keys')
      .select('id')
      .where(isEndedApiKey(before))
      .$if(except.length > 0, (q) => q.where('id', 'not in', except))
      .limit(deletionBatch)
      .execute(),
  remove: (tx, ids) =>
    tx
      .deleteFrom('api_keys')
      .where('id', 'in', ids)
      .where(isEndedApiKey(before))
      .returning(['id', 'org_id', 'name'])
      .execute(),
})

/** A key that enrolled a device stays as long as the device, whose origin it is. */
const isEndedEnrollmentKey =
  (before: Instant) =>
  ({ and, eb, exists, not, selectFrom }: ExpressionBuilder<Tables, 'enrollment_keys'>) =>
    and([
      eb('expires_at', '<', before),
      not(
        exists(
          selectFrom('devices')
            .select('devices.id')
            .whereRef('devices.enrollment_key_id', '=', 'enrollment_keys.id'),
        ),
      ),
    ])

/** Enrollment keys that have expired before a time, and that no device has come with. */
export const endedEnrollmentKeys = ({ heavy }: Storage, before: Instant): EndedRecords => ({
  find: (except) =>
    heavy
      .selectFrom('enrollment_keys')
      .select('id')
      .where(isEndedEnrollmentKey(before))
      .$if(except.length > 0, (q) => q.where('id', 'not in', except))
      .limit(deletionBatch)
      .execute(),
  // It may have been rotated meanwhile, which renews it.
  remove: (tx, ids) =>
    tx
      .deleteFrom('enrollment_keys')
      .where('id', 'in', ids)
      .where(isEndedEnrollmentKey(before))
      .returning(['id', 'org_id', 'name'])
      .execute(),
})
