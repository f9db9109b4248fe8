import { randomFillSync } from 'node:crypto'
import { v7 } from 'uuid'

/** A new UUIDv7: time-ordered, so primary keys grow at the end of their index. */
export function newId(): string {
  if (unused === pool.length) {
    randomFillSync(pool)
    unused = 0
  }
  const random = pool.subarray(unused, unused + 16)
  const now = Date.now()
  // Ids of one millisecond count up, from a random place.
  seq = now > msecs ? random.readUInt32BE() >>> 1 : seq + 1
  msecs = Math.max(now, msecs)
  unused += 16
  return v7({ random, msecs, seq })
}

/** Randomness is cheap by the page only. */
const pool = Buffer.alloc(4096)
let unused = pool.length
let msecs = 0
let seq = 0
