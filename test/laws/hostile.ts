import { z } from 'zod'
import { api } from '../../src/api.ts'
import { type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { unwrap } from '../../src/core/schema.ts'

/** An unused color, a title, C1, bidi and invisible characters, and a line that looks like the program's. */
export const hostile =
  'e\u001b[35m\u001b]0;t\u0007\u009b35m\u202eg\u200b\u{e0041}\u007f\r\nFORGED: line\u2028\ufeff'

/** The beginning of it as shown on a terminal. */
export const shown = 'e\\u001b[35m'

const id = '0197c1c4-0000-7000-8000-000000000010'
const time = '2026-01-31T12:00:00.000Z'

/** With `likely`, IDs, times and choices are valid, so that readers accept them and continue. */
export function hostileFor(schema: z.ZodType, likely: boolean, depth = 0): unknown {
  const inner = unwrap(schema)
  const again = (one: unknown) => hostileFor(one as z.ZodType, likely, depth + 1)
  const free = { [hostile]: hostile, list: [hostile] }
  if (depth > 8) return null
  if (inner instanceof z.ZodLazy) return again(inner.unwrap())
  if (inner instanceof z.ZodObject) {
    const { catchall } = inner.def
    const fields = Object.entries(inner.shape as Record<string, z.ZodType>).map(([key, one]) => [
      key,
      // No next page, as a reader of all pages would never end.
      ['nextCursor', 'nextAfter'].includes(key)
        ? null
        : ['total', 'page', 'totalCount'].includes(key)
          ? 1
          : again(one),
    ])
    const isOpen = catchall !== undefined && !(catchall instanceof z.ZodNever)
    return { ...Object.fromEntries(fields), ...(isOpen && free) }
  }
  if (inner instanceof z.ZodArray) return [again(inner.element)]
  if (inner instanceof z.ZodTuple) return inner.def.items.map(again)
  if (inner instanceof z.ZodRecord) return { [hostile]: again(inner.valueType) }
  if (inner instanceof z.ZodUnion) return again(inner.options[0])
  if (inner instanceof z.ZodNumber) return 7
  if (inner instanceof z.ZodBoolean) return true
  if (inner instanceof z.ZodNull) return null
  if (inner instanceof z.ZodAny || inner instanceof z.ZodUnknown) return free
  if (!likely) return hostile
  if (inner instanceof z.ZodEnum) return inner.options[0]
  if (inner instanceof z.ZodLiteral) return [...inner.values][0]
  if (!inner.safeParse(hostile).success)
    return [id, time].find((one) => inner.safeParse(one).success) ?? hostile
  return hostile
}

const routes = entriesOf(api).map(({ entry }) => ({
  entry,
  // `/orgs/sites` goes before `/orgs/:id`.
  params: entry.path.split(':').length,
  pattern: new RegExp(`^${entry.path.replace(/:\w+/g, '[^/]+').replace(/\/$/, '/?')}$`),
}))

/** The entry of a request. */
export const entryFor = (method: string, path: string): Endpoint | undefined =>
  routes
    .filter(({ entry, pattern }) => entry.method === method && pattern.test(path))
    .sort((a, b) => a.params - b.params)[0]?.entry

/** Whether a text is safe for a terminal; written independently of the product's own check. */
export const isClean = (text: string): boolean =>
  ['\u001b', '\u0007', '\u007f', '\u009b', '\u202e', '\u200b', '\u2028', '\ufeff', '\u{e0041}'].every(
    (one) => !text.includes(one),
  )

/** The sequences that the program itself writes: colors, line clearing, and moves between progress lines. */
export const own =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  /\u001b\[(?:0|1|2|4|22|24|3[0-4679]|4[07]|9[456])m|\r\u001b\[2K|\u001b\[\d+A|\u001b\[0J/g
