/*
 * The hourly limit of a key as a sliding window, shared by every process on the database. What was used is
 * counted in buckets of 18 s, and a bucket counts until the last of its requests is an hour old: a limit is
 * never exceeded in any hour, and what was used comes free at most 18 s (0.5 % of the window) late.
 *
 * A process does not write at each request. It leases some requests of the bucket that is open, at most
 * 0.5 % of the limit unless so many are waiting right now, and gives back what is left of a lease when the
 * bucket closes. Leases are counted before they are used, so a crash frees nothing.
 */

export const bucketMs = 18_000
const windowMs = 3_600_000

export const bucketAt = (ms: number): number => Math.floor(ms / bucketMs)

/** The oldest bucket with something in it that may be less than an hour old. */
export const oldestBucketAt = (ms: number): number => Math.floor((ms - windowMs) / bucketMs)

/** When nothing of a bucket is less than an hour old any more. */
export const bucketExpiryOf = (bucket: number): number => (bucket + 1) * bucketMs + windowMs

/** How many requests to lease for so many that wait. */
export const leaseSize = (limit: number, waiting: number): number =>
  Math.max(1, Math.floor(limit / 200), waiting)

/** How many of the wanted requests a window that holds `used` still has room for. */
export const grantable = (limit: number, used: number, wanted: number): number =>
  Math.max(0, Math.min(wanted, limit - used))

/** Where a key stands, as a caller is told. */
export type Quota = {
  limit: number
  remaining: number
  /** Unix time in seconds at which used requests begin to come free. */
  reset: number
}

/** Seconds until a refused caller may try again. */
export const retryAfterSeconds = ({ reset }: Quota, nowMs: number): number =>
  Math.max(1, Math.ceil(reset - nowMs / 1000))
