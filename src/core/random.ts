import { randomFillSync } from 'node:crypto'

/**
 * Random bytes for keys and ids. Drawn 4 KiB at a time, which makes them cheap; used bytes are erased from the
 * pool.
 */
export function randomBytes(size: number): Buffer {
  if (unused + size > pool.length) {
    randomFillSync(pool)
    unused = 0
  }
  const bytes = Buffer.from(pool.subarray(unused, unused + size))
  pool.fill(0, unused, unused + size)
  unused += size
  return bytes
}

const pool = Buffer.alloc(4096)
let unused = pool.length
