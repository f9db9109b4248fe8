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

/** Where a failure that nobody looks at must have its reason: a test says what it expects by other means. */
const isProduct = (file: string): boolean => /^(src|daemon|commands|bin|packaging)\//.test(file)

const unseen = /\bcatch \{|\.catch\((async )?\(\) =>/
const empty = /\bcatch( \(\w+\))? \{\s*\}/
const reason = /(^|\s)\/\/ (?!biome-ignore)\S/

/**
 * Lines that drop an error unseen, in a `catch` that does not bind it or a `.catch(() => …)`, without a comment beside them
 * that says why: on the line, on the one before, or on the first line of the block.
 */
function unexplainedCatchesIn(text: string): number[] {
  const lines = text.split('\n')
  return lines.flatMap((line, at) => {
    if (!unseen.test(line)) return []
    const first = line.endsWith('{') ? lines[at + 1]! : ''
    return [lines[at - 1] ?? '', line, first].some((one) => reason.test(one)) ? [] : [at + 1]
  })
}

it('a failure that is dropped has its reason beside it', () => {
  const product = (find: (text: string) => number[]) => placesOf(find).filter(isProduct)
  expect(product(unexplainedCatchesIn)).toEqual([])
  const found = (text: string): number[] => unexplainedCatchesIn(text)
  expect(found('try {\n  a()\n} catch {\n  return 1\n}')).toEqual([3])
  expect(found('try {\n  a()\n} catch {\n  // It is gone.\n}')).toEqual([])
  expect(found('try {\n  a() // It may be gone.\n} catch {\n  return 1\n}')).toEqual([])
  expect(found('try {\n  a()\n} catch {\n  b()\n  // It is gone.\n}')).toEqual([3])
  expect(found("const b = 'https://'\nawait a().catch(() => {})\n// Too late.")).toEqual([2])
  expect(found('// It may be gone.\nawait a().catch(() => undefined)')).toEqual([])
  expect(found('await a()\n  .catch(async () => b())')).toEqual([2])
  expect(found('await a().catch((error) => b(error))')).toEqual([])
  expect(found('try {\n  a()\n} catch (error) {\n  b(error)\n}')).toEqual([])
})

/** Lines with a block that is empty, also where it binds the error. */
const emptyCatchesIn = (text: string): number[] =>
  [...text.matchAll(new RegExp(empty, 'g'))].map(({ index }) => lineAt(text, index))

it('no catch is empty', () => {
  expect(placesOf(emptyCatchesIn)).toEqual([])
  expect(emptyCatchesIn('try {\n  a()\n} catch {}')).toEqual([3])
  expect(emptyCatchesIn('try {\n  a()\n} catch (error) {\n}')).toEqual([3])
  expect(emptyCatchesIn('try {\n  a()\n} catch {\n  // It is gone.\n}')).toEqual([])
})
