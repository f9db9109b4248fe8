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

/**
 * One step of a compiled pattern and the one after it; `arg` is the other one where the way parts. `runes` are the ends
 * of the ranges of characters it takes.
 */
type Step = { op: number; out: number; arg: number; runes: ArrayLike<number> }

// Operations as RE2JS numbers them: ALT and ALT_MATCH, CAPTURE and NOP, EMPTY_WIDTH.
const parts = new Set([1, 2])
const passes = new Set([3, 7])
const isTest = ({ op }: Step): boolean => op === 4

/** @throws when it is not a pattern */
export const stepsOf = (pattern: string): readonly Step[] =>
  (RE2JS.compile(pattern).re2() as unknown as { prog: { inst: Step[] } }).prog.inst

/** Steps of a pattern with its repetitions written out: what Postgres still compiles in milliseconds. */
const mostSteps = 600

/** Postgres makes a state of each: these take it a second, a million minutes. */
const mostWays = 4000

/** Why a text is no pattern that can be asked, or undefined when it is. */
export function patternFault(pattern: string): string | undefined {
  try {
    const steps = stepsOf(pattern)
    if (steps.length > mostSteps) return 'is too large: repeat less'
    return waysOf(steps) > mostWays
      ? 'lets too many of ^, $, \\b and \\B follow each other: repeat less'
      : undefined
  } catch (error) {
    return `is not an RE2 pattern: ${(error as Error).message}`
  }
}

/** In how many ways tests (^, $, \b ...) may follow one of them with nothing taken between, at the worst place. */
function waysOf(steps: readonly Step[]): number {
  const tests = steps.filter(isTest)
  const reached = new Map(tests.map((test) => [test, testsFrom(steps, test.out, { through: true })]))
  const known = new Map<Step, number>()
  const waysAfter = (test: Step): number => {
    const ways = known.get(test)
    if (ways !== undefined) return ways
    // Those that go round with it may come in any order.
    const loop = [...reached.get(test)!].filter((other) => reached.get(other)!.has(test))
    const next = new Set([test, ...loop].flatMap(({ out }) => [...testsFrom(steps, out)]))
    let made = 1
    for (const one of next) if (one !== test && !loop.includes(one)) made += waysAfter(one)
    made *= 2 ** loop.length
    known.set(test, made)
    return made
  }
  return Math.max(1, ...tests.map(waysAfter))
}

/** The tests that may be next, with nothing taken before; and `through` them those after. */
function testsFrom(steps: readonly Step[], from: number, { through = false } = {}): Set<Step> {
  const seen = new Set([from])
  for (const at of seen) {
    const step = steps[at]!
    if (parts.has(step.op)) seen.add(step.out).add(step.arg)
    else if (passes.has(step.op) || (through && isTest(step))) seen.add(step.out)
  }
  return new Set([...seen].map((at) => steps[at]!).filter(isTest))
}
