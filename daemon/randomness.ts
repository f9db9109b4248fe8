/*
 * Whether a secret looks randomly generated. An attacker with something derived from a secret (a token, a
 * stored hash, a backup) can guess it offline, and begins with words.
 */

/** Frequencies of letters in English, in thousandths. */
const letters: Readonly<Record<string, number>> = {
  a: 82,
  b: 15,
  c: 28,
  d: 43,
  e: 127,
  f: 22,
  g: 20,
  h: 61,
  i: 70,
  j: 2,
  k: 8,
  l: 40,
  m: 24,
  n: 67,
  o: 75,
  p: 19,
  q: 1,
  r: 60,
  s: 63,
  t: 91,
  u: 28,
  v: 10,
  w: 24,
  x: 2,
  y: 20,
  z: 1,
}

/** Letter pairs that make up half of English text. */
const pairs = new Set(
  (
    'th he in er an re nd at on nt ha es st en ed to it ou ea hi is or ti as te et ng of al de se le sa si ar ve ra ld ' +
    'ur ro ce ch co ec ct ke ey me ne nc no om pa pr ss wo rd us'
  ).split(' '),
)

const kinds = [
  { are: /[a-z]/, size: 26 },
  { are: /[A-Z]/, size: 26 },
  { are: /\d/, size: 10 },
  { are: /[^a-zA-Z\d]/, size: 33 },
]

const isHex = (text: string): boolean => /^[\da-f]+$/i.test(text)

const kindOf = (char: string): number => kinds.findIndex(({ are }) => are.test(char))

/** Bits of a text whose characters are drawn at random. */
function bitsIfDrawn(text: string): number {
  if (isHex(text)) return text.length * (/^\d+$/.test(text) ? Math.log2(10) : 4)
  const size = kinds.reduce((sum, { are, size }) => sum + (are.test(text) ? size : 0), 0)
  return text.length * Math.log2(/^[\w+/=-]+$/.test(text) ? Math.min(size, 64) : size)
}

/** Bits of a text under a model of words: common letter pairs and runs of one character class cost little. */
function bitsIfWritten(text: string): number {
  const chars = [...text]
  return chars.reduce((sum, char, at) => {
    const kind = kinds[kindOf(char)]!
    const frequency = letters[char.toLowerCase()]
    if (at === 0) return sum + Math.log2(kind.size)
    const before = chars[at - 1]!
    const goesOn = kindOf(before) === kindOf(char)
    const isPair = pairs.has(`${before}${char}`.toLowerCase())
    const isLetters = frequency !== undefined && before.toLowerCase() in letters
    const chance =
      frequency === undefined ? 1 / kind.size : isPair ? 0.2 : frequency / (isLetters ? 2000 : 1000)
    return sum - Math.log2(goesOn ? 0.85 : 0.15) - Math.log2(chance)
  }, 0)
}

const rows = ['abcdefghijklmnopqrstuvwxyz', '01234567890', 'qwertyuiop', 'asdfghjkl', 'zxcvbnm']

/** The share of adjacent characters that follow the alphabet, the digits or a keyboard row, or repeat. */
function shareOfSteps(text: string): number {
  const folded = text.toLowerCase()
  const pairs = Array.from({ length: folded.length - 1 }, (_, at) => folded.slice(at, at + 2))
  const isStep = (pair: string) =>
    pair[0] === pair[1] || rows.some((row) => row.includes(pair) || row.includes(`${pair[1]}${pair[0]}`))
  return pairs.filter(isStep).length / pairs.length
}

/** The share of three-character sequences that occur for the first time. */
function shareOfNew(text: string): number {
  const threes = Array.from({ length: text.length - 2 }, (_, at) => text.slice(at, at + 3))
  return new Set(threes).size / threes.length
}

/** At least 32 bytes, or 64 hexadecimal digits, without words, repetition and keyboard rows. */
export function looksRandom(text: string): boolean {
  if (Buffer.byteLength(text) < (isHex(text) ? 64 : 32)) return false
  if (shareOfNew(text) < 0.8 || shareOfSteps(text) > 0.5) return false
  // A random text needs far more bits in the model of words; a tenth of a bit per character is tolerance.
  return bitsIfWritten(text) > bitsIfDrawn(text) - text.length / 10
}
