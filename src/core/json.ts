/** The value of JSON text; undefined when the text is not JSON. */
export function parseJson(text: string | Buffer): unknown {
  try {
    return JSON.parse(text.toString())
  } catch {
    // A SyntaxError; what that means the caller knows.
    return undefined
  }
}

/** Whether a value of JSON is an object: neither a list nor null. */
export const isJsonObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === 'object' && !Array.isArray(value)

/** The record without undefined fields. */
export const withoutUndefined = <T extends object>(record: T) =>
  Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)) as Defined<T>

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> }

/** Most levels of JSON that any code descends into: a free object alone may have 32. */
export const maxJsonDepth = 64

/**
 * Nesting depth of JSON text and the number of its values: the cost of parsing it. For text that is not JSON
 * the result is an estimate.
 */
export function measureJson(text: string): { depth: number; values: number } {
  let depth = 0
  let level = 0
  let values = 1
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case quote:
        at = endOfString(text, at)
        break
      case comma:
        values += 1
        break
      case openBrace:
      case openBracket:
        values += 1
        level += 1
        if (level > depth) depth = level
        break
      case closeBrace:
      case closeBracket:
        level -= 1
    }
  }
  return { depth, values }
}

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c]
const [openBrace, openBracket, closeBrace, closeBracket] = [0x7b, 0x5b, 0x7d, 0x5d]

/** Index of the closing quote of the string that begins here. */
function endOfString(text: string, start: number): number {
  for (let at = start; ; ) {
    at = text.indexOf('"', at + 1)
    if (at === -1) return text.length
    let before = at - 1
    while (text.charCodeAt(before) === backslash) before -= 1
    // An even number of backslashes escape each other.
    if ((at - before) % 2 === 1) return at
  }
}

/** The path of fields to a value nested deeper than `levels`; undefined when there is none. */
export function findDeepPath(value: unknown, levels: number): string[] | undefined {
  if (value === null || typeof value !== 'object') return undefined
  if (levels === 0) return []
  for (const [key, item] of Object.entries(value)) {
    const rest = findDeepPath(item, levels - 1)
    if (rest) return [key, ...rest]
  }
  return undefined
}
