import fc from 'fast-check'
import { sql } from 'kysely'
import { expect, test } from 'vitest'
import { compileRe2, patternError } from '../../src/core/re2.ts'
import type { Storage } from '../../src/storage/open.ts'
import { toPostgresPattern } from '../../src/storage/patterns/re2-for-postgres.ts'
import { openEmpty } from '../databases.ts'

const atoms = [
  'a',
  'b',
  'k',
  'K',
  'ß',
  'ς',
  'İ',
  'é',
  '😀',
  '_',
  '-',
  ' ',
  '0',
  '{',
  '}',
  ',',
  ':',
  ']',
  'x{2',
  '{,3}',
  '\n',
  '.',
  '\\d',
  '\\D',
  '\\w',
  '\\W',
  '\\s',
  '\\S',
  '\\pL',
  '\\PL',
  '\\p{Greek}',
  '\\p{^Lu}',
  '\\P{Nd}',
  '\\p{Lu}',
  '[a-c]',
  '[^a-c]',
  '[]a]',
  '[^]a]',
  '[[:alpha:]_]',
  '[[:^digit:]]',
  '[\\d\\-k]',
  '[^\\W]',
  '[\\]]',
  '[k]',
  '[kK]',
  '[Aa]',
  '[^\\x00-\\x{10FFFF}]',
  '[\\x{0}-\\x{10FFFF}]',
  '[\\pL-]',
  '[a-]',
  '[-a]',
  '[:a]',
  '[[:word:]ß]',
  '[😀-😂]',
  '\\x41',
  '\\x{1F600}',
  '\\101',
  '\\n',
  '\\t',
  '\\.',
  '\\*',
  '\\\\',
  '\\/',
  '\\x{10FFFF}',
  '^',
  '$',
  '\\A',
  '\\z',
  '\\b',
  '\\B',
  '\\Qa.b\\E',
  '\\Q\\E',
  '\\Q*',
  '\\QK',
]
const repeats = [
  '',
  '',
  '',
  '',
  '*',
  '+',
  '?',
  '*?',
  '+?',
  '??',
  '{2}',
  '{0}',
  '{1,2}',
  '{0,3}',
  '{2,}',
  '{2,}?',
  '{0,1}',
]
const groups = ['(', '(?:', '(?i:', '(?s:', '(?m:', '(?-i:', '(?i-s:', '(?P<n>', '(?<q>', '(?U:', '(?ims:']
const setting = ['', '', '', '', '', '(?i)', '(?s)', '(?m)', '(?-i)', '(?U)', '(?i-m)', '(?ms)']

const { pattern } = fc.letrec<{ pattern: string; piece: string }>((tie) => ({
  pattern: fc
    .array(fc.array(tie('piece'), { maxLength: 3 }), { minLength: 1, maxLength: 3 })
    .map((all) => all.map((pieces) => pieces.join('')).join('|')),
  piece: fc
    .tuple(
      fc.constantFrom(...setting),
      fc.oneof(
        { maxDepth: 3, withCrossShrink: true },
        fc.constantFrom(...atoms),
        fc.tuple(fc.constantFrom(...groups), tie('pattern')).map(([open, inner]) => `${open}${inner})`),
      ),
      fc.constantFrom(...repeats),
    )
    .map((parts) => parts.join('')),
}))
const texts = fc
  .array(fc.constantFrom(...'abcABCkKK0_- \n.*{},:]\\ßẞςσΣİiıéÉ😀😁x2\t/١'), { maxLength: 8 })
  .map((all) => all.join(''))

type Case = [pattern: string, texts: readonly string[]]

/** The number of answers of Postgres that were compared, all equal to those of RE2. */
async function compare({ read }: Storage, cases: readonly Case[]): Promise<number> {
  const good = cases.filter(([one]) => one.length <= 100 && patternError(one) === undefined)
  const questions = good.flatMap(([one, list]) =>
    list.map((text) => ({ one, text, wanted: compileRe2(one).test(text) })),
  )
  if (questions.length === 0) return 0
  const columns = questions.map(
    ({ one, text }) => sql`cast(${text} as text) collate "C" ~ ${toPostgresPattern(one)}`,
  )
  const { rows } = await sql<{
    answers: string
  }>`select array_to_json(array[${sql.join(columns)}])::text as answers`.execute(read)
  const answers = JSON.parse(rows[0]!.answers) as boolean[]
  const wrong = questions.flatMap((question, i) =>
    answers[i] === question.wanted ? [] : [{ ...question, postgres: toPostgresPattern(question.one) }],
  )
  expect(wrong).toEqual([])
  return answers.length
}

test('a pattern matches the same texts in Postgres as in RE2', async () => {
  const { storage } = await openEmpty('postgres')
  let all = 0
  const cases = fc.array(fc.tuple(pattern, fc.array(texts, { minLength: 8, maxLength: 8 })), {
    minLength: 1,
    maxLength: 20,
    size: 'max',
  })
  await fc.assert(
    fc.asyncProperty(cases, async (some) => {
      all += await compare(storage, some)
    }),
    { numRuns: 1000, interruptAfterTimeLimit: 30_000 },
  )
  expect(all).toBeGreaterThan(10_000)
})

test('Postgres compiles loops over empty matches, if their context allows it', async () => {
  const { storage } = await openEmpty('postgres')
  const asked = ['', 'a', 'b', '1', ' ', 'aa', 'ab', 'a1', '1a', 'a b', 'a\nb', '1aa', 'éé', '-1', 'kk', '}']
  const patterns = [
    '^(((\\D|\\Ba*){1,2}){2,})*$',
    '^((\\D|\\Ba*){2,3})*1$',
    '(a|\\B){2,}b',
    '^(a?\\b){2,}$',
    '^((\\b|\\B)+a?)+$',
    '((((((a|\\B)+)+)+)+)+)+1',
    '(\\p{Lu}??(?m)(-\\D{0,3}||(?-i:(?i)\\b\\b{1,2}|.(?ms)ß{1,2}(?i)é{2,})+(?s)[:a]*(?i)\\B)){0,3}\\.??',
    '(?m)(?U:(?-i)(?ims:(?i)\\d(?U)}|(?m:|\\p{Greek}*\\B{2}(?m)[^\\x00-\\x{10FFFF}]{0,3}){1,2}\\z+)+)+?',
    '(?s:(?U)\\s*(?s)😀*(?ms)a?|(?U:K{1,2}|)(?-i:(?s)[kK]?(?-i)\\b(?U)\\b+){2,}?|){0,3}|',
    '(?U)b|(?U)((?-i)(?-i:)*(?-i)(?i:(?i-m)(?s:\\pL?(?U)$+?|(?ms)\\b[-a]?))+){2,}',
  ]
  const nested = (inner: string, [open, close]: readonly [string, string], levels: number) =>
    `${open.repeat(levels)}${inner}${close.repeat(levels)}`
  patterns.push(
    nested('a', ['(', 'b)+'], 24),
    nested('a', ['(', 'b)*'], 24),
    nested('(a|\\B)', ['(b*', 'c*)+'], 13),
    nested('(a|\\B)', ['(b*', 'c*)*'], 13),
    nested('(a|\\B)', ['(', 'b)+'], 22),
  )
  const cases = patterns.map((one): Case => [one, asked])
  expect(await compare(storage, cases)).toBe(patterns.length * asked.length)
})
