import { RE2JS } from 're2js'

/** A compiled RE2 pattern. @throws when the pattern is not valid */
export function compileRe2(pattern: string): RE2JS {
  const known = ready.get(pattern)
  if (known) return known
  const made = RE2JS.compile(pattern)
  // The oldest entry is evicted: a statement uses few patterns, each for every row.
  if (ready.size >= 100) ready.delete(ready.keys().next().value!)
  ready.set(pattern, made)
  return made
}

const ready = new Map<string, RE2JS>()

/**
 * One instruction of a compiled pattern: `out` is the next one; `arg` is the alternative of a branch. `runes`
 * are the bounds of the character ranges it matches.
 */
type Step = { op: number; out: number; arg: number; runes: ArrayLike<number> }

// RE2JS operation codes: ALT and ALT_MATCH (branches), CAPTURE and NOP (pass through), EMPTY_WIDTH (tests).
const parts = new Set([1, 2])
const passes = new Set([3, 7])
const isTest = ({ op }: Step): boolean => op === 4

/** @throws when the pattern is not valid */
export const stepsOf = (pattern: string): readonly Step[] =>
  (RE2JS.compile(pattern).re2() as unknown as { prog: { inst: Step[] } }).prog.inst

/**
 * Most instructions of a pattern with its repetitions expanded: Postgres still compiles this many in
 * milliseconds.
 */
const maxSteps = 600

/** Postgres creates a state for each sequence of tests: this many take it a second, a million take minutes. */
const maxWays = 4000

/** Why a text is not an acceptable pattern, or undefined when it is. */
export const patternError = (pattern: string): string | undefined => judged(pattern).fault

/**
 * Most different patterns in one query, and their total cost. Postgres caches the last 32 that it compiled: one
 * more, and each is compiled again for each row.
 */
export const maxPatterns = 30
/** Unit: `compileCost`; about 20 ms. */
const maxToCompile = 5000
/** Unit: instructions, and tens of character ranges. */
const maxToAsk = 2000

/**
 * The first pattern with which the patterns exceed the cost limits of one query; undefined when they are all
 * allowed. Compiles no pattern that would take long.
 */
export function firstTooExpensive(patterns: readonly string[]): string | undefined {
  const different = [...new Set(patterns)]
  if (different.length > maxPatterns) return different[maxPatterns]
  return (
    firstBeyond(different, compileCost, maxToCompile) ??
    firstBeyond(different, (one) => judged(one).cost, maxToAsk)
  )
}

function firstBeyond(
  patterns: readonly string[],
  cost: (one: string) => number,
  max: number,
): string | undefined {
  let sum = 0
  return patterns.find((one) => {
    sum += cost(one)
    return sum > max
  })
}

type Judged = { fault?: string | undefined; cost: number }

const judgments = new Map<string, Judged>()

function judged(pattern: string): Judged {
  const known = judgments.get(pattern)
  if (known) return known
  const made = judge(pattern)
  if (judgments.size >= 1000) judgments.delete(judgments.keys().next().value!)
  judgments.set(pattern, made)
  return made
}

function judge(pattern: string): Judged {
  if (compileCost(pattern) > maxToCompile) return { fault: 'is too large: repeat less', cost: maxToAsk }
  try {
    const steps = stepsOf(pattern)
    const cost = steps.reduce((sum, { runes }) => sum + 1 + runes.length / 20, 0)
    if (steps.length > maxSteps) return { fault: 'is too large: repeat less', cost }
    if (waysOf(steps) <= maxWays) return { cost }
    return { fault: 'allows too many sequences of ^, $, \\b and \\B: repeat less', cost }
  } catch (error) {
    return { fault: `is not an RE2 pattern: ${(error as Error).message}`, cost: 0 }
  }
}

/** A class, an escape, a repetition, a parenthesis or a character: the units of cost. */
const token =
  /\\Q.*?(?:\\E|$)|\\[pP](?:\{[^}]*\}|.)|\\x\{[^}]*\}|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\[pP]\{[^}]*\}|\\.|[^\]])*|\((?:\?P?<[^>]*>|\?[a-zA-Z-]*[:)])?|\{(\d+)(,\d*)?\}|./gsu

/** A Unicode class adds some hundred ranges. */
const unicodeClass = 40
/** A range is case-folded character by character; this many cost one unit. */
const foldedAtOnce = 30

/**
 * Cost of compiling a pattern, estimated from its text: repetitions are expanded, and every character of a
 * range is case-folded. One unit is about 4 µs.
 */
export function compileCost(pattern: string): number {
  const folds = /\(\?[a-zA-Z]*i/.test(pattern)
  const around: number[] = []
  let sum = 0
  let last = 0
  for (const [text, from, more] of pattern.matchAll(token)) {
    if (from !== undefined && last > 0) {
      const [min, max] = [Number(from), Number(more?.slice(1) ?? 0)]
      // An optional repetition costs one more instruction each time.
      const times = more === undefined ? min : max === 0 ? min + 1 : Math.max(min, 2 * max - min)
      sum += last * (times - 1)
      last *= Math.max(times, 1)
    } else if (text.startsWith('(') && !/^\(\?.*\)$/s.test(text)) {
      around.push(sum)
      sum = 2
      last = 0
    } else if (text === ')') {
      last = sum
      sum += around.pop() ?? 0
    } else {
      last = costOf(text, folds)
      sum += last
    }
  }
  return around.reduce((all, one) => all + one, sum)
}

function costOf(text: string, folds: boolean): number {
  const classes = text.match(/\\[pP]/g)?.length ?? 0
  const ranges = folds ? [...text.matchAll(wideRange)] : []
  const size = text.startsWith('[') ? 1 + text.length / 10 : text.startsWith('\\Q') ? text.length : 1
  const folded = ranges.reduce((sum, [, from, to]) => sum + foldedIn(pointOf(from!), pointOf(to!)), 0)
  return size + classes * unicodeClass + folded / foldedAtOnce
}

/** A range that may span many characters: others stay within ASCII and its neighborhood. */
const wideRange = /(\\x\{[0-9a-f]+\}|\\x[0-9a-f]{2}|[^\\])-(\\x\{[0-9a-f]+\}|[^\p{ASCII}])/giu

const pointOf = (written: string): number =>
  written.startsWith('\\x')
    ? Number.parseInt(written.replace(/[^0-9a-f]/gi, ''), 16)
    : written.codePointAt(0)!

/**
 * The first and the last character that has another case; RE2JS recognizes a range of all of them and folds
 * nothing.
 */
const [firstFolded, lastFolded] = [0x41, 0x1e943]

function foldedIn(from: number, to: number): number {
  if (from <= firstFolded && to >= lastFolded) return 0
  return Math.max(0, Math.min(to, lastFolded) - Math.max(from, firstFolded))
}

/**
 * In how many ways tests (^, $, \b ...) may follow one of them without consuming a character, in the worst
 * case.
 */
function waysOf(steps: readonly Step[]): number {
  const tests = steps.filter(isTest)
  const reached = new Map(tests.map((test) => [test, testsFrom(steps, test.out, { through: true })]))
  const known = new Map<Step, number>()
  const waysAfter = (test: Step): number => {
    const ways = known.get(test)
    if (ways !== undefined) return ways
    // Tests in one loop may occur in any order.
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

/** The tests reachable without consuming a character; with `through` also those after the first test. */
function testsFrom(steps: readonly Step[], from: number, { through = false } = {}): Set<Step> {
  const seen = new Set([from])
  for (const at of seen) {
    const step = steps[at]!
    if (parts.has(step.op)) seen.add(step.out).add(step.arg)
    else if (passes.has(step.op) || (through && isTest(step))) seen.add(step.out)
  }
  return new Set([...seen].map((at) => steps[at]!).filter(isTest))
}
