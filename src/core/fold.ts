/**
 * Text as case-insensitive search compares it: compatibility forms unified (NFKC), lower case, and one
 * small sigma, because a final ς stops being final when more letters follow.
 * ß and ss stay different, as they do in Postgres' lower().
 */
export function fold(text: string): string {
  return ascii.test(text) ? text.toLowerCase() : text.normalize('NFKC').toLowerCase().replaceAll('ς', 'σ')
}

const ascii = /^\p{ASCII}*$/u

/**
 * The characters that words stand between in folded text, as ranges: what is in them besides punctuation has
 * become something else by then. Higher ones (U+2010 …) Postgres cannot look up in an index of trigrams.
 */
export const wordBreaks = ['\t\r', ' /', ':@', '[`', '{¿'] as const

/** A word of a text begins behind such a character, and never with one. */
export const isWordBreak = (letter: string): boolean =>
  wordBreaks.some(([first, last]) => letter >= first! && letter <= last!)
