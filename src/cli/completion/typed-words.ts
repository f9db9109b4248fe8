import { powerShellWord } from '../shell-words.ts'
import type { Shell } from './scripts.ts'

/** What stands before the cursor. */
export type TypedWords = {
  /** The words behind `svc`, without the last one. */
  before: string[]
  /** The beginning of the word at the cursor. */
  current: string
  /** The quote that it begins with. */
  quote: string
}

/** zsh and fish hand over words; bash and PowerShell the line, which bash would divide at `=` and `:` too. */
export function typedWords(shell: Shell, given: readonly string[]): TypedWords {
  if (shell === 'zsh' || shell === 'fish') {
    return { before: given.slice(0, -1), current: given.at(-1) ?? '', quote: '' }
  }
  const { words, quote } = divide(given.join(' '), shell === 'bash' ? '\\' : '`')
  return { before: words.slice(1, -1), current: words.at(-1) ?? '', quote }
}

/** The words of a line without their quotes. Nothing is evaluated: `$(…)` is text. */
function divide(line: string, escaping: string): { words: string[]; quote: string } {
  const words: string[] = []
  let word = ''
  let quote = ''
  let isInWord = false
  for (let at = 0; at < line.length; at += 1) {
    const letter = line[at]!
    if (letter === escaping && quote !== "'" && at + 1 < line.length) {
      at += 1
      word += line[at]
      isInWord = true
    } else if (quote !== '') {
      if (letter === quote) quote = ''
      else word += letter
    } else if (letter === '"' || letter === "'") {
      quote = letter
      isInWord = true
    } else if (/\s/.test(letter)) {
      if (isInWord) words.push(word)
      word = ''
      isInWord = false
    } else {
      word += letter
      isInWord = true
    }
  }
  return { words: [...words, word], quote }
}

const isPlain = (text: string): boolean => /^[\p{L}\p{N}_@%+=:,./-]+$/u.test(text)

/**
 * A value as the shell takes it for the word at the cursor; undefined when it has none. zsh and fish quote by themselves. bash replaces
 * only what stands behind the last `=` or `:`.
 */
export function insertion(shell: Shell, value: string, { current, quote }: TypedWords): string | undefined {
  if (shell === 'zsh' || shell === 'fish') return value
  if (shell === 'powershell') return isPlain(value) ? value : powerShellWord(value)
  if (quote !== '') return /["'\\$`!]/.test(value) ? undefined : value
  const kept = /^.*[=:]/s.exec(current)?.[0].length ?? 0
  return value.slice(kept).replace(/[^\p{L}\p{N}_@%+=:,./-]/gu, '\\$&')
}
