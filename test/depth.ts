import type { Dialect } from '../src/storage/db.ts'

/** Whether this is `npm run test:soak`, which repeats the random, kill and update suites in full depth. */
export const isSoak = process.env.SOAK === '1'

/** How many rounds or cases: `few` in `npm test`, `many` in the soak. */
export const depth = (few: number, many: number): number => (isSoak ? many : few)

/**
 * Whether a case is tried of what is decided above the storage: all of them on SQLite and in the soak, each nth on Postgres
 * in `npm test`.
 */
export const isTried = (kind: Dialect, index: number, nth: number): boolean =>
  isSoak || kind === 'sqlite' || index % nth === 0

/**
 * Of a matrix over the contract, whose rules are above the storage: every case on SQLite and in the soak, each sixth on
 * Postgres in `npm test`. Every endpoint is called on Postgres by test/laws/portability.test.ts.
 */
export const matrixOn = <Case>(kind: Dialect, cases: readonly Case[]): Case[] =>
  cases.filter((_, index) => isTried(kind, index, 6))

/**
 * Whether a case that takes processes is tried: on one of the databases in `npm test`, the next case on the other, and on both
 * in the soak.
 */
export const takesTurn = (kind: Dialect, index: number): boolean =>
  isSoak || (index % 2 === 0) === (kind === 'sqlite')

/** Of cases that differ little: each nth in `npm test`, all in the soak. */
export const eachNth = <Case>(nth: number, cases: readonly Case[]): Case[] =>
  cases.filter((_, index) => isSoak || index % nth === 0)

/** Of everything random: the same in each `npm test`, another in each soak. `SEED=n` repeats a run. */
export const seed = Number(process.env.SEED ?? (isSoak ? Date.now() % 2 ** 31 : 1))

/** Numbers from 0 to 1 that a seed repeats (mulberry32). */
export function randomFrom(start: number): () => number {
  let state = start | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}
