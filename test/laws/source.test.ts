import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const root = join(import.meta.dirname, '../..')
// The text of a migration never changes.
const sources = globSync(['{src,daemon,commands,packaging,test,bin}/**/*.{ts,js}', '*.{js,ts}'], {
  cwd: root,
}).filter((file) => !file.endsWith('source.test.ts'))

const lineAt = (text: string, index: number): number => text.slice(0, index).split('\n').length

/** Where the source has lines that `find` returns. */
const placesOf = (find: (text: string) => number[]): string[] =>
  sources.flatMap((file) => find(readFileSync(join(root, file), 'utf8')).map((line) => `${file}:${line}`))

/** Lines with a literal that is spread where it stands: `{ ...{ a, b } }` is `{ a, b }`, laid out by hand. */
function spreadIn(text: string): number[] {
  return [...text.matchAll(/\.\.\.(\(?)[{[]/g)]
    .filter(({ index, 0: start, 1: parenthesis }) => {
      const end = parenthesis === '' ? /^\s*[,)\]}]/ : /^\s*as const\s*\)\s*[,)\]}]/
      let depth = 0
      for (let at = index + start.length - 1; at < text.length; at++) {
        if ('([{'.includes(text[at]!)) depth++
        if (')]}'.includes(text[at]!) && --depth === 0) return end.test(text.slice(at + 1, at + 200))
      }
      return false
    })
    .map(({ index }) => lineAt(text, index))
}

it('a literal is laid out by the formatter, and not spread to be denser', () => {
  expect(sources.length).toBeGreaterThan(1000)
  expect(placesOf(spreadIn)).toEqual([])
})

it('a literal that is spread would be found', () => {
  expect(spreadIn('const a = {\n  ...{ b, c: [1] },\n  d,\n}')).toEqual([2])
  expect(spreadIn('const a = [...[1, 2], ...b]')).toEqual([1])
  expect(spreadIn("const a = [\n  ...(['b', 'c'] as const),\n]")).toEqual([2])
  expect(spreadIn("const a = [...(['b', 'c'] as const).map(f)]")).toEqual([])
  expect(spreadIn('const a = [...[1, 2].map(f), ...(b ? [c] : []), ...{ d } as E]')).toEqual([])
  expect(spreadIn('const f = (...[a, b]: Parameters<G>) => a')).toEqual([])
})

/** Lines with a catch that says neither what it does about a failure nor why nothing. */
const silentCatchesIn = (text: string): number[] =>
  [...text.matchAll(/\bcatch( \(\w+\))? \{\s*\}/g)].map(({ index }) => lineAt(text, index))

it('a failure that is ignored has its reason', () => {
  expect(placesOf(silentCatchesIn)).toEqual([])
  expect(silentCatchesIn('try {\n  a()\n} catch {}')).toEqual([3])
  expect(silentCatchesIn('try {\n  a()\n} catch (error) {\n}')).toEqual([3])
  expect(silentCatchesIn('try {\n  a()\n} catch {\n  // It is gone.\n}')).toEqual([])
})
