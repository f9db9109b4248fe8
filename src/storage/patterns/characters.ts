import { stepsOf } from '../../core/re2.ts'

export type PatternFlags = { i: boolean; m: boolean; s: boolean }

/** A literal character in RE2 syntax. */
export const literalOf = (character: string): string => `\\x{${character.codePointAt(0)!.toString(16)}}`

type Ranges = readonly (readonly [number, number])[]

const last = 0x10ffff
const foldedOnly = 1

/** The code points that RE2 matches for an atom under the current flags. */
function rangesOf(atom: string, { i, s }: PatternFlags): Ranges {
  const step = stepsOf(`(?${i ? 'i' : ''}${s ? 's' : ''}:${atom})`).find(({ runes }) => runes.length > 0)
  if (!step) return []
  const runes = Array.from(step.runes)
  if (runes.length === 1 && step.arg === foldedOnly) {
    // One character in both cases: beside another character RE2 lists everything it folds to.
    const all = stepsOf(`(?i:[\\x{${runes[0]!.toString(16)}}\\x{${last.toString(16)}}])`)
    return pairs(Array.from(all.find((one) => one.runes.length > 1)!.runes)).filter(([from]) => from !== last)
  }
  return pairs(runes.length === 1 ? [runes[0]!, runes[0]!] : runes)
}

const pairs = (ends: readonly number[]): Ranges =>
  ends.flatMap((from, i) => (i % 2 === 0 ? [[from, ends[i + 1]!] as const] : []))

const written = new Map<string, string>()

/**
 * The code points that RE2 matches for a character or class under these flags, as one bracket expression of Postgres;
 * cached.
 */
export function characterClass(atom: string, flags: PatternFlags): string {
  const key = `${flags.i} ${flags.s} ${atom}`
  const known = written.get(key)
  if (known !== undefined) return known
  const made = bracketOf(rangesOf(atom, flags))
  if (written.size >= 1000) written.clear()
  written.set(key, made)
  return made
}

/** Text in the database holds no NUL. */
function bracketOf(ranges: Ranges): string {
  const some = ranges.map(([from, to]) => [Math.max(from, 1), to] as const).filter(([from, to]) => from <= to)
  if (some.length === 0) return '(?:\\Z.)'
  const [[from, to]] = some as [readonly [number, number]]
  if (some.length === 1 && from === 1 && to === last) return '.'
  if (some.length === 1 && from === to) return code(from)
  return `[${some.map(([low, high]) => (low === high ? code(low) : `${code(low)}-${code(high)}`)).join('')}]`
}

function code(point: number): string {
  const character = String.fromCodePoint(point)
  if (/[0-9A-Za-z]/.test(character)) return character
  const hex = point.toString(16).toUpperCase()
  return point > 0xffff ? `\\U${hex.padStart(8, '0')}` : `\\u${hex.padStart(4, '0')}`
}
