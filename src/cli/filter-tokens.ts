import { type CliError, usageError } from './exit-codes.ts'

/** A piece of an expression; `at` is its position. `quoted`: text that can only be a value. */
export type Token = { kind: 'word' | 'quoted' | 'mark' | 'end'; text: string; at: number }

const marks = /[=!<>~(),]/
const space = /\s/

/** Splits an expression into words, quoted texts and marks. @throws usage, with the position */
export function tokenize(source: string): Token[] {
  const tokens: Token[] = []
  for (let at = 0; at < source.length; ) {
    const letter = source[at]!
    if (space.test(letter)) {
      at += 1
    } else if (letter === '"' || letter === "'") {
      const { text, end } = quotedFrom(source, at)
      tokens.push({ kind: 'quoted', text, at })
      at = end
    } else if (marks.test(letter)) {
      const pair = source.slice(at, at + 2)
      const text = ['!=', '>=', '<='].includes(pair) ? pair : letter
      if (text === '!') throw syntaxError(source, at, 'expected !=')
      tokens.push({ kind: 'mark', text, at })
      at += text.length
    } else {
      const start = at
      while (at < source.length && !isEnd(source[at]!)) at += 1
      tokens.push({ kind: 'word', text: source.slice(start, at), at: start })
    }
  }
  tokens.push({ kind: 'end', text: '', at: source.length })
  return tokens
}

const isEnd = (letter: string): boolean => space.test(letter) || marks.test(letter) || /["']/.test(letter)

const escapes: Record<string, string> = { n: '\n', t: '\t', r: '\r', '\\': '\\', '"': '"', "'": "'" }

/** A backslash before any other character is literal, so that patterns need no escapes. */
function quotedFrom(source: string, start: number): { text: string; end: number } {
  const quote = source[start]!
  const parts: string[] = []
  for (let at = start + 1; at < source.length; at += 1) {
    const letter = source[at]!
    if (letter === quote) return { text: parts.join(''), end: at + 1 }
    const escaped = letter === '\\' ? escapes[source[at + 1] ?? ''] : undefined
    parts.push(escaped ?? letter)
    if (escaped !== undefined) at += 1
  }
  throw syntaxError(source, start, `expected ${quote} at the end of this text`)
}

/** Text between quotes, to be read back the same. */
export const quote = (text: string): string =>
  `"${text.replace(/[\\"\n\t\r]/g, (letter) => `\\${written[letter] ?? letter}`)}"`

const written: Record<string, string> = { '\n': 'n', '\t': 't', '\r': 'r' }

/** Whether a text reads as one word, without quotes. */
export const isWord = (text: string): boolean => text !== '' && ![...text].some(isEnd)

const maxExcerpt = 72

/** A syntax error, with its line and a caret under the position. */
export function syntaxError(
  source: string,
  at: number,
  message: string,
  hint = 'svc help filters',
): CliError {
  const start = source.lastIndexOf('\n', at - 1) + 1
  const lineEnd = source.indexOf('\n', at)
  const line = source.slice(start, lineEnd === -1 ? undefined : lineEnd)
  const from = Math.max(0, at - start - maxExcerpt / 2)
  const shown = line.slice(from, from + maxExcerpt).replaceAll('\t', ' ')
  const cut = [from > 0 ? '…' : '', from + maxExcerpt < line.length ? '…' : '']
  const before = cut[0]!.length + [...line.slice(from, at - start)].length
  const column = [...source.slice(start, at)].length + 1
  const row = start === 0 ? '' : `line ${source.slice(0, start).split('\n').length}, `
  return usageError(
    `The filter is wrong at ${row}column ${column}: ${message}\n  ${cut[0]}${shown}${cut[1]}\n  ${' '.repeat(before)}^`,
    hint,
  )
}
