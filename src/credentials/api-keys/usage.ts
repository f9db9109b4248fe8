import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { bucketAt, bucketExpiryOf, grantable, oldestBucketAt, type Quota } from './rate-limit-window.ts'

/* Usage of authenticated keys: each query is by the id of the key. */

/** The unused part of a lease from one bucket of a key. */
export type UnusedLease = { keyId: string; bucket: number; count: number }

const lockedKey = prepared((db, p: { id: string }) =>
  forUpdate(db.selectFrom('api_keys').select('rate_limit').where('id', '=', p.id)),
)
const used = prepared((db, p: { id: string; oldest: number }) =>
  db
    .selectFrom('api_key_buckets')
    .select(({ fn }) => [fn.sum<number | null>('count').as('count'), fn.min('bucket').as('oldest')])
    .where('key_id', '=', p.id)
    .where('bucket', '>=', p.oldest)
    .where('count', '>', 0),
)
const addition = prepared((db, p: { key_id: string; bucket: number; count: number }) =>
  db
    .insertInto('api_key_buckets')
    .values({ key_id: p.key_id, bucket: p.bucket, count: p.count })
    .onConflict((c) =>
      c.columns(['key_id', 'bucket']).doUpdateSet((eb) => ({
        count: eb('api_key_buckets.count', '+', eb.ref('excluded.count')),
      })),
    ),
)
const subtraction = prepared((db, p: UnusedLease) =>
  db
    .updateTable('api_key_buckets')
    .set((eb) => ({ count: eb('count', '-', p.count) }))
    .where('key_id', '=', p.keyId)
    .where('bucket', '=', p.bucket),
)

/** Counts requests in the open bucket before they happen: as many as wanted, or as many as the limit allows. */
export async function leaseRequests(
  db: Db,
  keyId: string,
  wanted: number,
  nowMs: number,
): Promise<{ granted: number; quota: Quota }> {
  const [key] = await lockedKey(db, { id: keyId })
  const limit = key?.rate_limit ?? 0
  const [window] = await used(db, { id: keyId, oldest: oldestBucketAt(nowMs) })
  const count = Number(window?.count ?? 0)
  const granted = grantable(limit, count, wanted)
  const bucket = bucketAt(nowMs)
  if (granted > 0) await addition(db, { key_id: keyId, bucket, count: granted })
  const reset = Math.ceil(bucketExpiryOf(window?.oldest ?? bucket) / 1000)
  return { granted, quota: { limit, remaining: Math.max(0, limit - count - granted), reset } }
}

/** Returns the unused part of leases. */
export async function releaseRequests(db: Db, leftovers: readonly UnusedLease[]): Promise<void> {
  for (const one of leftovers) await subtraction(db, one)
}

/** Deletes buckets that are more than an hour old. */
export async function sweepBuckets(db: Db, nowMs: number): Promise<void> {
  await db.deleteFrom('api_key_buckets').where('bucket', '<', oldestBucketAt(nowMs)).execute()
}

/** Uses of a key since they were last recorded. `hash`: of the key that was used. */
export type KeyUsage = { keyId: string; hash: string; count: number; lastUsedAt: Instant }

const increment = prepared((db, p: { id: string; hash: string; count: number; at: string }) =>
  db
    .updateTable('api_keys')
    .set((eb) => ({
      usage_count: eb('usage_count', '+', p.count),
      last_used_at: eb
        .case()
        .when(eb.or([eb('last_used_at', 'is', null), eb('last_used_at', '<', p.at)]))
        .then(p.at)
        .else(eb.ref('last_used_at'))
        .end(),
    }))
    .where('id', '=', p.id)
    .where('key_hash', '=', p.hash),
)

/** Uses of the key before a rotation are not counted: the rotation resets the count. */
export async function recordUsage(db: Db, uses: readonly KeyUsage[]): Promise<void> {
  for (const { keyId, hash, count, lastUsedAt } of uses) {
    await increment(db, { id: keyId, hash, count, at: lastUsedAt })
  }
}
