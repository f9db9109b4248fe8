import { describe, expect, it } from 'vitest'
import { compileCost, firstTooExpensive, maxPatterns, patternError, stepsOf } from '../../src/core/re2.ts'

/** Each of them takes a compiler of RE2 over a tenth of a second. */
const slow = {
  'nested repetitions': `(?:(?:${'x'.repeat(200)}){31}){31}`,
  'repeated classes': `(?:(?:${'[a-c]'.repeat(40)}){31}){31}`,
  'repeated alternatives': `(?:${'a|bc|'.repeat(40)}){1000}`,
  'a repeated quotation': `(?:\\Q${'x'.repeat(200)}\\E){1000}`,
  'optional parts': `(?:(?:${'x'.repeat(200)}){0,31}){0,31}`,
  'case-folded ranges': `(?i)[${'B-\\x{1e942}'.repeat(20)}]`,
  'ranges of literal characters': `(?i)[${'B-\u{1e942}'.repeat(58)}]`,
}

/** Of processor time, which a busy machine prolongs little. */
const milliseconds = ({ user, system }: NodeJS.CpuUsage): number => (user + system) / 1000

describe('the cost of patterns', () => {
  it.each(Object.entries(slow))('is known without compiling them: %s', (_, pattern) => {
    const start = process.cpuUsage()
    expect(firstTooExpensive([pattern])).toBe(pattern)
    expect(patternError(pattern)).toMatch(/too large/)
    expect(milliseconds(process.cpuUsage(start))).toBeLessThan(50)
  })

  it('includes character ranges as well as steps', () => {
    expect(firstTooExpensive([`(?i)${'\\pL'.repeat(80)}`])).toBeDefined()
    expect(firstTooExpensive(['\\pL{500}'])).toBeDefined()
    expect(firstTooExpensive(['^\\pL{20}$'])).toBeUndefined()
  })

  it('is that of all patterns together, each counted once', () => {
    const some = (count: number, of: (n: number) => string) => Array.from({ length: count }, (_, n) => of(n))
    expect(firstTooExpensive(some(10, (n) => `[a-z]{${300 + n}}`))).toMatch(/^\[a-z\]\{30\d\}$/)
    expect(firstTooExpensive(some(199, () => '[a-z]{300}'))).toBeUndefined()
    expect(firstTooExpensive(some(maxPatterns, (n) => `srv-${n}`))).toBeUndefined()
    expect(firstTooExpensive(some(maxPatterns + 1, (n) => `srv-${n}`))).toBe(`srv-${maxPatterns}`)
  })

  it('permits realistic patterns', () => {
    const patterns = [
      '(?i)^(srv|web|db)-[0-9]+\\.example\\.(com|net)$',
      '^(\\d{1,3})\\.\\d{1,3}\\.\\d{1,3}\\.\\d{1,3}$',
      '(?i)^[à-ÿ]+$',
      '(?i)[一-鿿]',
      '(?i)[^\\x00-\\x{10FFFF}]',
      '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$',
      '(?i)microsoft (visual c\\+\\+|\\.net) \\d{4}',
    ]
    expect(firstTooExpensive(patterns)).toBeUndefined()
    const names = Array.from(
      { length: maxPatterns },
      (_, n) => `(?i)^(srv|web|db)-${n}-[0-9]+\\.example\\.(com|net)$`,
    )
    expect(firstTooExpensive(names)).toBeUndefined()
  })

  it.each([
    'a{3}b{2,}c{1,4}',
    '(?:ab|c(d|e){3}){10}',
    '((a{2}){3}){4}',
    '(?i)(?:[a-z]x?){20}',
    '\\Qa.b\\E{3}',
    '(?P<n>ab){30}',
    '[[:alpha:]\\]x]{9}',
    '\\x{41}{7}',
  ])('is estimated from the text close to the real steps: %s', (pattern) => {
    expect(compileCost(pattern) * 2 + 5).toBeGreaterThan(stepsOf(pattern).length)
  })

  it('lets any permitted filter compile in milliseconds', () => {
    const unicode = Array.from({ length: 5 }, (_, n) => `(?i)[${'\\pL\\PN\\pM\\PS'.repeat(4)}${n}]`)
    const folding = ['(?i)[B-\\x{1e942}]']
    const tests = Array.from({ length: 6 }, (_, n) => `${'\\b'.repeat(120)}${n}`)
    const plain = Array.from({ length: 4 }, (_, n) => `[a-z]{${380 + n}}`)
    for (const patterns of [unicode, folding, tests, plain]) {
      stepsOf(patterns[0]!)
      const start = process.cpuUsage()
      firstTooExpensive(patterns)
      for (const one of patterns) patternError(one)
      expect(milliseconds(process.cpuUsage(start))).toBeLessThan(200)
    }
  })
})
