import { inspect } from 'node:util'

/**
 * Characters that move the cursor, color or reorder terminal text, or are present but invisible: controls, line
 * separators, everything that Unicode lets a renderer ignore, joiners where no script needs them, variation
 * selectors that select nothing, and more combining marks than any letter has, which are drawn over other
 * lines. Emoji and keycap digits need their selectors.
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

/**
 * Makes everything visible except line breaks and tabs. An escaped string inside JSON remains the same string.
 */
export const escapeControls = (text: string): string => text.replace(hidden, escaped)

/** A text on one line, of any width: names come from machines we do not trust. */
export const escapeToOneLine = (text: string): string =>
  escapeControls(text).replaceAll('\n', '⏎').replaceAll('\t', ' ')

export const hasNoControls = (text: string): boolean => text.search(hidden) === -1

/** Applies `escapeControls`, or another function, to every text and field name in a value. */
export function escapeControlsIn<T>(value: T, shown = escapeControls): T {
  const of = (one: unknown): unknown => {
    if (typeof one === 'string') return shown(one)
    if (Array.isArray(one)) return one.map(of)
    if (one === null || typeof one !== 'object') return one
    return Object.fromEntries(Object.entries(one).map(([key, inner]) => [shown(key), of(inner)]))
  }
  return of(value) as T
}

/** A random mark that nobody else can know: text between two of them was written by this process. */
const mark = `\u001b<${crypto.randomUUID()}>`

/**
 * Marks a control sequence of this program, which reaches the terminal unchanged. It must never contain data.
 */
export const allowSequence = (sequence: string): string => mark + sequence + mark

/** The text without the program's own control sequences. */
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

/** What a terminal may be given by another program of this one, such as a pager: escaped as in `guardStream`. */
export const textForTerminal = (text: string): string => opened(text, true)

type Done = (error?: Error | null) => void

/**
 * The only path to a terminal: whoever writes to the stream, only sequences marked by `allowSequence` pass
 * unchanged, and all other controls are made visible. Files and pipes get the bytes unchanged. `failed` is told of the first
 * failure, after which nothing is written.
 */
export function guardStream(stream: NodeJS.WriteStream, failed: (error: Error) => void): void {
  const writeRaw = stream.write.bind(stream) as (chunk: string | Uint8Array, done?: Done) => boolean
  let failure: Error | undefined
  const fail = (error: Error) => {
    if (!failure) failed(error)
    failure ??= error
  }
  // No event for anybody else: a library listens to it with a function that throws what it is given.
  const emit = stream.emit.bind(stream) as (event: string | symbol, ...args: unknown[]) => boolean
  stream.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    if (event !== 'error') return emit(event, ...args)
    fail(args[0] as Error)
    return true
  }
  const write = (chunk: string | Uint8Array, done?: Done): boolean => {
    if (!failure) return writeRaw(chunk, done)
    done?.(failure)
    return true
  }
  // A single byte from 0x80 to 0x9f is a control on some terminals; decoded as UTF-8 it is not.
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

let outputFailed: (error: NodeJS.ErrnoException) => void = () => {}

/** What happens when standard output cannot be written. */
export const onOutputFailure = (handle: typeof outputFailed): void => {
  outputFailed = handle
}

/**
 * Called at the start of every program. An uncaught exception is also written through the guard, not by Node
 * directly.
 */
export function guardTerminal(): void {
  guardStream(process.stdout, (error) => outputFailed(error))
  // Nobody can be told, and the work itself is unaffected.
  guardStream(process.stderr, () => {})
  process.on('uncaughtException', (error) => {
    process.stderr.write(`${error instanceof Error ? error.stack : inspect(error)}\n`, () => process.exit(1))
  })
}
