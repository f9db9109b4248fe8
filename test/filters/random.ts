import { randomFrom as numbersFrom } from '../depth.ts'

/** Random choices that are reproducible from a seed. */
export type Random = {
  /** A whole number from 0, below `limit`. */
  below(limit: number): number
  pick<T>(from: readonly T[]): T
  chance(of: number): boolean
  some<T>(from: readonly T[], max: number): T[]
}

export function randomFrom(seed: number): Random {
  const next = numbersFrom(seed)
  const below = (limit: number) => Math.floor(next() * limit)
  const pick = <T>(from: readonly T[]): T => from[below(from.length)]!
  return {
    below,
    pick,
    chance: (of) => next() < of,
    some: (from, max) => Array.from({ length: below(max + 1) }, () => pick(from)),
  }
}
