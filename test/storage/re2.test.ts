import fc from 'fast-check'
import { sql } from 'kysely'
import { expect, test } from 'vitest'
import { patternFault, re2 } from '../../src/core/re2.ts'
import { translated } from '../../src/storage/re2-for-postgres.ts'
import { openEmpty } from '../databases.ts'

const atoms = [
  ...[
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
  ],
  ...[
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
  ],
  ...[
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
  ],
  ...[
    '[^\\x00-\\x{10FFFF}]',
    '[\\x{0}-\\x{10FFFF}]',
    '[\\pL-]',
    '[a-]',
    '[-a]',
    '[:a]',
    '[[:word:]ß]',
    '[😀-😂]',
  ],
  ...['\\x41', '\\x{1F600}', '\\101', '\\n', '\\t', '\\.', '\\*', '\\\\', '\\/', '\\x{10FFFF}'],
  ...['^', '$', '\\A', '\\z', '\\b', '\\B', '\\Qa.b\\E', '\\Q\\E', '\\Q*', '\\QK'],
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

test('a pattern matches the same texts in Postgres as in RE2', { timeout: 120_000 }, async () => {
  const { storage } = await openEmpty('postgres')
  let compared = 0
  const cases = fc.array(fc.tuple(pattern, fc.array(texts, { minLength: 8, maxLength: 8 })), {
    minLength: 1,
    maxLength: 20,
    size: 'max',
  })
  await fc.assert(
    fc.asyncProperty(cases, async (some) => {
      const good = some.filter(([one]) => one.length <= 100 && patternFault(one) === undefined)
      const questions = good.flatMap(([one, list]) =>
        list.map((text) => ({ one, text, wanted: re2(one).test(text) })),
      )
      if (questions.length === 0) return
      const columns = questions.map(
        ({ one, text }) => sql`cast(${text} as text) collate "C" ~ ${translated(one)}`,
      )
      const { rows } = await sql<{
        answers: string
      }>`select array_to_json(array[${sql.join(columns)}])::text as answers`.execute(storage.read)
      const answers = JSON.parse(rows[0]!.answers) as boolean[]
      compared += answers.length
      const wrong = questions.flatMap((question, i) =>
        answers[i] === question.wanted ? [] : [{ ...question, postgres: translated(question.one) }],
      )
      expect(wrong).toEqual([])
    }),
    { numRuns: 1000, interruptAfterTimeLimit: 30_000 },
  )
  expect(compared).toBeGreaterThan(10_000)
})
