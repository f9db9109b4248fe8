import { allowSequence, escapeToOneLine } from '../core/terminal.ts'
import { truncate, wrapWords } from './text-width.ts'

let buffered: string[] | undefined
let isStatusShown = false

/** Clears the line and returns to its beginning. */
const clearLine = allowSequence('\r\u001b[2K')

/** Shows a spinner or a bar in the current line of the terminal, in place of the one before. */
export function showStatus(text: string): void {
  isStatusShown = true
  const { columns } = process.stderr
  // A second line would stay when the first is cleared.
  process.stderr.write(`${clearLine}${columns ? truncate(text, columns - 1) : text}`)
}

export function clearStatus(): void {
  if (isStatusShown) process.stderr.write(clearLine)
  isStatusShown = false
}

/**
 * A line of standard error, broken between words where a terminal would break within one. Further lines are indented:
 * a name at the beginning of one could pass for what the program says.
 */
export function wrapNote(line: string): string {
  const { isTTY, columns } = process.stderr
  return isTTY && columns ? wrapWords(line, columns, columns - 2).join('\n  ') : line
}

/** Prints a note on standard error, escaped to one line: a name in it could contain lines that look like the program's. */
export function printNote(text: string): void {
  if (buffered) {
    buffered.push(text)
    return
  }
  clearStatus()
  process.stderr.write(`${process.stderr.isTTY ? wrapNote(escapeToOneLine(text)) : text}\n`)
}

/**
 * Whether notes wait until the command has finished: with --json a failure leaves one line of JSON on
 * standard error and nothing else. On a terminal notes are printed immediately.
 */
export function bufferNotes(isWanted: boolean): void {
  buffered = isWanted && !process.stderr.isTTY ? [] : undefined
}

export function flushNotes(): void {
  const notes = buffered ?? []
  buffered = undefined
  for (const note of notes) printNote(note)
}

/** `--json`, `-o json` and the like, before `--`. */
export function wantsJson(argv: string[]): boolean {
  const end = argv.indexOf('--')
  const words = end === -1 ? argv : argv.slice(0, end)
  return words.some((word, i) => {
    if (word === '--json' || /^(-o=?|--output=)(json|ndjson)$/.test(word)) return true
    return (word === '-o' || word === '--output') && /^(json|ndjson)$/.test(words[i + 1] ?? '')
  })
}
