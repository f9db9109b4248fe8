/**
 * A number from 0, inclusive, to 1, exclusive: always the same for a seed, an agent and a purpose. So no generated
 * property of an agent has to be stored.
 */
export function seededRandom(seed: number, agent: number, purpose: string): number {
  let x = seed ^ Math.imul(agent, 0x9e3779b1)
  for (let at = 0; at < purpose.length; at++) x = mixBits(x ^ purpose.charCodeAt(at))
  return (mixBits(x) >>> 0) / 2 ** 32
}

/** An integer hash of low bias: lowbias32 of C. Wellons, "Prospecting for Hash Functions". */
function mixBits(from: number): number {
  let x = from ^ (from >>> 16)
  x = Math.imul(x, 0x21f0aaad)
  x ^= x >>> 15
  x = Math.imul(x, 0x735a2d97)
  return x ^ (x >>> 15)
}

/** Selects one of several weighted values by `chance`, from 0 to 1. */
export function weightedPick<T>(weighted: readonly { of: T; weight: number }[], chance: number): T {
  let left = chance * weighted.reduce((sum, { weight }) => sum + weight, 0)
  for (const { of, weight } of weighted) {
    left -= weight
    if (left < 0) return of
  }
  return weighted.at(-1)!.of
}

export const oneOf = <T>(all: readonly T[], chance: number): T => all[Math.floor(chance * all.length)]!
