import { RE2JS } from 're2js'

/** A pattern in RE2 syntax, ready to be asked. @throws when it is not one */
export function compileRe2(pattern: string): RE2JS {
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
export const patternError = (pattern: string): string | undefined => judged(pattern).fault

/**
 * Different patterns that one question may ask for, and what they may cost together. Postgres keeps the last 32 that it
 * compiled: one more, and each is compiled anew for each row.
 */
export const maxPatterns = 30
/** Of `compileCost`: some 20 ms. */
const mostToCompile = 5000
/** Of steps, and of tens of ranges of characters. */
const mostToAsk = 2000

/**
 * The first of the patterns with which they cost more together than one question may; undefined: they may all be asked.
 * Nothing is compiled that would take long.
 */
export function firstTooExpensive(patterns: readonly string[]): string | undefined {
  const different = [...new Set(patterns)]
  if (different.length > maxPatterns) return different[maxPatterns]
  return past(different, compileCost, mostToCompile) ?? past(different, (one) => judged(one).cost, mostToAsk)
}

function past(patterns: readonly string[], cost: (one: string) => number, most: number): string | undefined {
  let sum = 0
  return patterns.find((one) => {
    sum += cost(one)
    return sum > most
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
  if (compileCost(pattern) > mostToCompile) return { fault: 'is too large: repeat less', cost: mostToAsk }
  try {
    const steps = stepsOf(pattern)
    const cost = steps.reduce((sum, { runes }) => sum + 1 + runes.length / 20, 0)
    if (steps.length > mostSteps) return { fault: 'is too large: repeat less', cost }
    if (waysOf(steps) <= mostWays) return { cost }
    return { fault: 'lets too many of ^, $, \\b and \\B follow each other: repeat less', cost }
  } catch (error) {
    return { fault: `is not an RE2 pattern: ${(error as Error).message}`, cost: 0 }
  }
}

/** A class, an escape, a repetition, a parenthesis or a character, as far as their cost goes. */
const token =
  /\\Q.*?(?:\\E|$)|\\[pP](?:\{[^}]*\}|.)|\\x\{[^}]*\}|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\[pP]\{[^}]*\}|\\.|[^\]])*|\((?:\?P?<[^>]*>|\?[a-zA-Z-]*[:)])?|\{(\d+)(,\d*)?\}|./gsu

/** A class of Unicode is some hundred ranges to add. */
const unicodeClass = 40
/** Characters of a range that are looked at one by one for those that differ in case alone. */
const foldedAtOnce = 30

/**
 * What it takes to compile a pattern, told from its text: repetitions are written out, and all that is in a range is
 * folded. Some 4 µs each.
 */
export function compileCost(pattern: string): number {
  const folds = /\(\?[a-zA-Z]*i/.test(pattern)
  const around: number[] = []
  let sum = 0
  let last = 0
  for (const [text, least, more] of pattern.matchAll(token)) {
    if (least !== undefined && last > 0) {
      const [min, max] = [Number(least), Number(more?.slice(1) ?? 0)]
      // What may be left out is a step more each time.
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

/** A range that may reach far: others do not leave ASCII and what is beside it. */
const wideRange = /(\\x\{[0-9a-f]+\}|\\x[0-9a-f]{2}|[^\\])-(\\x\{[0-9a-f]+\}|[^\p{ASCII}])/giu

const pointOf = (written: string): number =>
  written.startsWith('\\x')
    ? Number.parseInt(written.replace(/[^0-9a-f]/gi, ''), 16)
    : written.codePointAt(0)!

/** The first and the last character that has another case; a range of all of them is known to be whole. */
const [firstFolded, lastFolded] = [0x41, 0x1e943]

function foldedIn(from: number, to: number): number {
  if (from <= firstFolded && to >= lastFolded) return 0
  return Math.max(0, Math.min(to, lastFolded) - Math.max(from, firstFolded))
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
