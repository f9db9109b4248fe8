import { escapeToOneLine } from '../core/terminal.ts'

let buffered: string[] | undefined

/** Prints a note on standard error, escaped to one line: a name in it could contain lines that look like the program's. */
export function printNote(text: string): void {
  if (buffered) buffered.push(text)
  else process.stderr.write(`${process.stderr.isTTY ? escapeToOneLine(text) : text}\n`)
}

/**
 * Buffers notes until the command has finished: with --json a failure leaves one line of JSON on
 * standard error and nothing else. On a terminal notes are printed immediately.
 */
export function bufferNotes(): void {
  if (!process.stderr.isTTY) buffered = []
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
