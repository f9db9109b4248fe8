import { RE2JS } from 're2js'

/** A pattern in RE2 syntax, ready to be asked. @throws when it is not one */
export function re2(pattern: string): RE2JS {
  const known = ready.get(pattern)
  if (known) return known
  const made = RE2JS.compile(pattern)
  // The oldest goes: a statement asks for few patterns, each for every row.
  if (ready.size >= 100) ready.delete(ready.keys().next().value!)
  ready.set(pattern, made)
  return made
}

const ready = new Map<string, RE2JS>()

/** One step of a compiled pattern; `runes` are the ends of the ranges of characters it takes. */
type Step = { op: number; arg: number; runes: ArrayLike<number> }

/** @throws when it is not a pattern */
export const stepsOf = (pattern: string): readonly Step[] =>
  (RE2JS.compile(pattern).re2() as unknown as { prog: { inst: Step[] } }).prog.inst

/** Steps of a pattern with its repetitions written out: what Postgres still compiles in milliseconds. */
const mostSteps = 600

/** Why a text is no pattern that can be asked, or undefined when it is. */
export function patternFault(pattern: string): string | undefined {
  try {
    return stepsOf(pattern).length > mostSteps ? 'is too large: repeat less' : undefined
  } catch (error) {
    return `is not an RE2 pattern: ${(error as Error).message}`
  }
}
