/*
 * The hourly limit of a key as a sliding window, shared by every process on the database. Requests are counted
 * in buckets of 18 s, and a bucket counts until the last of its requests is an hour old: the limit is never
 * exceeded in any hour, and used requests become available again at most 18 s (0.5 % of the window) late. A
 * process does not write at each request. It leases requests of the open bucket, at most 0.5 % of the limit
 * unless more are waiting at that moment, and returns the unused part of a lease when the bucket closes. Leases
 * are counted before they are used, so a crash frees nothing.
 */

export const bucketMs = 18_000
const windowMs = 3_600_000

export const bucketAt = (ms: number): number => Math.floor(ms / bucketMs)

/** The oldest bucket that may contain requests less than an hour old. */
export const oldestBucketAt = (ms: number): number => Math.floor((ms - windowMs) / bucketMs)

/** When every request of a bucket is at least an hour old. */
export const bucketExpiryOf = (bucket: number): number => (bucket + 1) * bucketMs + windowMs

/** How many requests to lease for this many waiting ones. */
export const leaseSize = (limit: number, waiting: number): number =>
  Math.max(1, Math.floor(limit / 200), waiting)

/** How many of the wanted requests a window that holds `used` still has room for. */
export const grantable = (limit: number, used: number, wanted: number): number =>
  Math.max(0, Math.min(wanted, limit - used))

/** State of a key's limit, as reported to the caller. */
export type Quota = {
  limit: number
  remaining: number
  /** Unix time in seconds at which used requests start to become available again. */
  reset: number
}

/** Seconds until a refused caller may try again. */
export const retryAfterSeconds = ({ reset }: Quota, nowMs: number): number =>
  Math.max(1, Math.ceil(reset - nowMs / 1000))
