import { stripStyles } from '../core/terminal.ts'

const narrow = /^[\u0020-\u007e]*$/

/** Columns a text takes on a terminal. */
export const displayWidth = (text: string): number => (narrow.test(text) ? text.length : wideWidth(text))

function wideWidth(text: string): number {
  patterns ??= {
    emoji: /\p{RGI_Emoji}/gv,
    invisible: /\p{M}|\u200b|\u200c|\u200d/gu,
    wide: /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}]/gu,
  }
  const { emoji, invisible, wide } = patterns
  return [...text.replace(emoji, '  ').replace(invisible, '').replace(wide, '  ')].length
}

/** The engine takes 20 ms to read that of emojis: a command that prints none does not wait for it. */
let patterns: Record<'emoji' | 'invisible' | 'wide', RegExp> | undefined

let segmenter: Intl.Segmenter | undefined

/** What people take for one character: a letter with its marks, an emoji of several code points. */
function charactersOf(text: string): Iterable<string> {
  if (narrow.test(text)) return text
  segmenter ??= new Intl.Segmenter('en')
  return Array.from(segmenter.segment(text), ({ segment }) => segment)
}

/** Cuts a text to a width, with … at the end. */
export function truncate(text: string, width: number): string {
  if (displayWidth(text) <= width) return text
  let kept = ''
  let left = width - 1
  for (const character of charactersOf(text)) {
    left -= displayWidth(character)
    if (left < 0) break
    kept += character
  }
  return `${kept}…`
}

/**
 * Lines of a text, broken between words. Lines after the first have `later` columns: they will be indented. A word that is
 * longer than a line stays whole, so that addresses and ids can be copied.
 */
export function wrapWords(text: string, width: number, later = width): string[] {
  const lines: string[] = []
  let line = ''
  let used = 0
  for (const [at, word] of text.split(' ').entries()) {
    const room = lines.length === 0 ? width : later
    const more = displayWidth(stripStyles(word))
    if (at > 0 && used + 1 + more > room) {
      lines.push(line)
      line = word
      used = more
    } else {
      line += at === 0 ? word : ` ${word}`
      used += at === 0 ? more : 1 + more
    }
  }
  return [...lines, line]
}
