import { inspect } from 'node:util'

/**
 * What moves the cursor, colors or reorders a terminal's text, or stands in it and is not seen: controls, breaks, whatever
 * Unicode lets a renderer ignore, joiners where no script has a use for them, selectors that select nothing, and marks beyond
 * all that a letter has, which are drawn over other lines. Emoji need their selectors, and so do digits of keycaps.
 */
const alone = String.raw`\p{ASCII}\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}`
const joiners = String.raw`\u200c\u200d`
const selector = String.raw`\p{Variation_Selector}`
const hidden = new RegExp(
  [
    String.raw`[[\p{Cc}\p{Zl}\p{Zp}\p{DI}\ufff9-\ufffb]--[\n\t${joiners}${selector}]]`,
    `(?<=^|[${alone}${joiners}])[${joiners}]`,
    `(?<=^|[[${alone}${joiners}${selector}]--[0-9#*]])${selector}`,
    String.raw`(?<=[\p{M}--${selector}]{8})\p{M}`,
    String.raw`(?<=[0-9#*])[${selector}--[\ufe0e\ufe0f]]`,
  ].join('|'),
  'gv',
)

const escaped = (character: string): string =>
  Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
    .map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`)
    .join('')

/** Makes everything visible but line breaks and tabs. What stood within a string of JSON is the same string still. */
export const escapeControls = (text: string): string => text.replace(hidden, escaped)

/** A text that has one line, as wide as it will be: names come from machines we do not trust. */
export const escapeToOneLine = (text: string): string =>
  escapeControls(text).replaceAll('\n', '⏎').replaceAll('\t', ' ')

export const hasNoControls = (text: string): boolean => text.search(hidden) === -1

/** The same for every text in a value, and every name; or what else is to be made of them. */
export function escapeControlsIn<T>(value: T, shown = escapeControls): T {
  const of = (one: unknown): unknown => {
    if (typeof one === 'string') return shown(one)
    if (Array.isArray(one)) return one.map(of)
    if (one === null || typeof one !== 'object') return one
    return Object.fromEntries(Object.entries(one).map(([key, inner]) => [shown(key), of(inner)]))
  }
  return of(value) as T
}

/** Nobody else can know it: what stands between two of these was put there by this process. */
const mark = `\u001b<${crypto.randomUUID()}>`

/** A control sequence of the program's own, which reaches the terminal as it is. Never has data in it. */
export const allowSequence = (sequence: string): string => mark + sequence + mark

/** Without the program's own sequences. */
export const stripStyles = (text: string): string =>
  text
    .split(mark)
    .filter((_, n) => n % 2 === 0)
    .join('')

const opened = (text: string, isTerminal: boolean): string =>
  isTerminal || text.includes(mark)
    ? text
        .split(mark)
        .map((part, n) => (isTerminal && n % 2 === 0 ? escapeControls(part) : part))
        .join('')
    : text

type Done = (error?: Error | null) => void

/**
 * The one door to a terminal: whoever writes to the stream, only `own` sequences get through and all else is made visible.
 * Files and pipes are given the bytes as they are.
 */
export function guardStream(stream: NodeJS.WriteStream): void {
  const write = stream.write.bind(stream) as (chunk: string | Uint8Array, done?: Done) => boolean
  // A byte from 0x80 to 0x9f alone is a control of some terminals: decoded, it is none.
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  stream.write = (chunk: string | Uint8Array, encoding?: BufferEncoding | Done, done?: Done): boolean => {
    const isText = typeof chunk === 'string'
    const after = typeof encoding === 'function' ? encoding : done
    if (!isText && !stream.isTTY) return write(chunk, after)
    return write(
      opened(isText ? chunk : decoder.decode(chunk, { stream: true }), stream.isTTY === true),
      after,
    )
  }
}

/** For the start of every program: also what ends it unexpectedly is told through the door, and not by Node past it. */
export function guardTerminal(): void {
  guardStream(process.stdout)
  guardStream(process.stderr)
  process.on('uncaughtException', (error) => {
    process.stderr.write(`${error instanceof Error ? error.stack : inspect(error)}\n`, () => process.exit(1))
  })
}
