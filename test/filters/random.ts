/** Random choices that a seed repeats. */
export type Random = {
  /** A whole number from 0, below `limit`. */
  below(limit: number): number
  pick<T>(from: readonly T[]): T
  chance(of: number): boolean
  some<T>(from: readonly T[], most: number): T[]
}

/** mulberry32. */
export function randomFrom(seed: number): Random {
  let state = seed >>> 0
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (limit: number) => Math.floor(next() * limit)
  const pick = <T>(from: readonly T[]): T => from[below(from.length)]!
  return {
    below,
    pick,
    chance: (of) => next() < of,
    some: (from, most) => Array.from({ length: below(most + 1) }, () => pick(from)),
  }
}
