/**
 * Text as case-insensitive search compares it: compatibility forms unified (NFKC), lower case, and a single
 * small sigma, because a final ς stops being final when more letters follow. ß and ss stay different, as in
 * Postgres' lower().
 */
export function fold(text: string): string {
  return ascii.test(text) ? text.toLowerCase() : text.normalize('NFKC').toLowerCase().replaceAll('ς', 'σ')
}

const ascii = /^\p{ASCII}*$/u

/**
 * Characters that separate words in folded text, as ranges: whatever they contain besides punctuation does not
 * occur after folding. Postgres cannot look up higher ones (U+2010 …) in a trigram index.
 */
export const wordBreaks = ['\t\r', ' /', ':@', '[`', '{¿'] as const

/** A word begins after such a character, and never with one. */
export const isWordBreak = (letter: string): boolean =>
  wordBreaks.some(([first, last]) => letter >= first! && letter <= last!)
