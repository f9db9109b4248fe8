import { v7 } from 'uuid'
import { randomBytes } from './random.ts'

/** A new UUIDv7: time-ordered, so primary keys grow at the end of their index. */
export function newId(): string {
  const random = randomBytes(16)
  const now = Date.now()
  // Ids within one millisecond count up from a random start.
  seq = now > msecs ? random.readUInt32BE() >>> 1 : seq + 1
  msecs = Math.max(now, msecs)
  return v7({ random, msecs, seq })
}

let msecs = 0
let seq = 0
