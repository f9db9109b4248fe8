import { stepsOf } from '../core/re2.ts'

/**
 * A pattern in RE2 syntax as the regular expression of Postgres that matches the same texts. Only the structure is
 * translated: groups, alternatives, repetitions, anchors and flags. What a character or a class of characters takes
 * is asked of RE2 itself, one at a time, and written out as code points, so that neither the locale of the database
 * nor its ideas of letters matter. The pattern is one that `re2` takes.
 */
export function translated(pattern: string): string {
  const known = ready.get(pattern)
  if (known !== undefined) return known
  const made = new Translation(pattern).whole()
  if (ready.size >= 100) ready.delete(ready.keys().next().value!)
  ready.set(pattern, made)
  return made
}

const ready = new Map<string, string>()

/** `once`: asking for it again changes nothing, as for an anchor. */
type Piece = { text: string; once?: true }

type Flags = { i: boolean; m: boolean; s: boolean }

const word = '[0-9A-Z_a-z]'
const boundary = `(?:(?<!${word})(?=${word})|(?<=${word})(?!${word}))`
const noBoundary = `(?:(?<!${word})(?!${word})|(?<=${word})(?=${word}))`
const lineStart = '(?<![^\\u000A])'
const lineEnd = '(?![^\\u000A])'

class Translation {
  readonly #pattern: string
  #at = 0

  constructor(pattern: string) {
    this.#pattern = pattern
  }

  whole(): string {
    return this.#alternatives({ i: false, m: false, s: false })
  }

  /** Up to the end or the closing parenthesis. Flags set within hold to its end, over bars as well. */
  #alternatives(flags: Flags): string {
    const alternatives: Piece[][] = [[]]
    for (let next = this.#peek(); next !== '' && next !== ')'; next = this.#peek()) {
      const pieces = alternatives.at(-1)!
      if (next === '|') {
        this.#at += 1
        alternatives.push([])
      } else if (next === '(') this.#group(pieces, flags)
      else if (next === '\\' && this.#pattern[this.#at + 1] === 'Q') this.#quoted(pieces, flags)
      else if (!this.#repetition(pieces)) pieces.push(this.#atom(flags))
    }
    return alternatives.map((pieces) => pieces.map(({ text }) => text).join('')).join('|')
  }

  #peek(): string {
    return this.#pattern.slice(this.#at, this.#at + 1)
  }

  /** Takes what is here, if it is this. */
  #take(what: RegExp): RegExpExecArray | undefined {
    const found = new RegExp(what.source, 'suy')
    found.lastIndex = this.#at
    const taken = found.exec(this.#pattern) ?? undefined
    this.#at += taken?.[0].length ?? 0
    return taken
  }

  #group(pieces: Piece[], flags: Flags): void {
    const set = this.#take(/\(\?([imsU]*)(?:-([imsU]+))?([:)])/)
    const inner = set?.[3] === ')' ? flags : { ...flags }
    for (const letter of set?.[1] ?? '') if (letter in inner) inner[letter as keyof Flags] = true
    for (const letter of set?.[2] ?? '') if (letter in inner) inner[letter as keyof Flags] = false
    if (set?.[3] === ')') return
    if (!set) this.#take(/\((?:\?P?<[^>]*>)?/)
    const text = `(?:${this.#alternatives(inner)})`
    this.#at += 1
    pieces.push({ text })
  }

  #quoted(pieces: Piece[], flags: Flags): void {
    this.#at += 2
    const end = this.#pattern.indexOf('\\E', this.#at)
    const literal = this.#pattern.slice(this.#at, end < 0 ? undefined : end)
    this.#at = end < 0 ? this.#pattern.length : end + 2
    pieces.push(...[...literal].map((character) => ({ text: charactersOf(literalOf(character), flags) })))
  }

  /** Of the last piece; whether it takes much or little makes no difference to a yes or no. */
  #repetition(pieces: Piece[]): boolean {
    const found = this.#take(/([*+?]|\{(\d+)(,(\d*))?\})\??/)
    if (!found) return false
    const piece = pieces.pop()!
    const [, sign, least, open, most] = found
    const signs: Record<string, [number, number]> = { '*': [0, Infinity], '+': [1, Infinity], '?': [0, 1] }
    const [min, max] = signs[sign!] ?? [
      Number(least),
      open === undefined ? Number(least) : most === '' ? Infinity : Number(most),
    ]
    pieces.push(repeated(piece, min, max))
    return true
  }

  #atom(flags: Flags): Piece {
    const anchor = this.#take(/\^|\$|\\[AzbB]/)?.[0]
    if (anchor !== undefined) return { text: anchors(flags)[anchor]!, once: true }
    const escaped = /\\(?:[pP](?:\{[^}]*\}|.)|x(?:\{[^}]*\}|..)|[0-7]{1,3}|.)/
    const atom = this.#take(/\[/) ? this.#bracket() : (this.#take(escaped) ?? this.#take(/./))![0]
    const isPlain = atom !== '.' && [...atom].length === 1
    return { text: charactersOf(isPlain ? literalOf(atom) : atom, flags) }
  }

  /** The rest of a class after its opening bracket. */
  #bracket(): string {
    const start = this.#at - 1
    this.#take(/\^?\]?/)
    while (!this.#take(/\]/)) {
      const named = this.#pattern.startsWith('[:', this.#at) ? this.#pattern.indexOf(':]', this.#at + 2) : -1
      if (named >= 0) this.#at = named + 2
      else this.#take(/\\?./)
    }
    return this.#pattern.slice(start, this.#at)
  }
}

const anchors = ({ m }: Flags): Record<string, string> => ({
  '^': m ? lineStart : '\\A',
  $: m ? lineEnd : '\\Z',
  '\\A': '\\A',
  '\\z': '\\Z',
  '\\b': boundary,
  '\\B': noBoundary,
})

/** Postgres counts to 255. */
const mostRepeats = 255

function repeated({ text: found, once }: Piece, min: number, max: number): Piece {
  if (once) return { text: min === 0 ? '' : found, once }
  const text = max > 1 ? looped(found) : found
  const times = (count: number, from: (n: number) => string) => {
    const whole = `${text}${from(mostRepeats)}`.repeat(Math.floor(count / mostRepeats))
    return count % mostRepeats === 0 ? whole : `${whole}${text}${from(count % mostRepeats)}`
  }
  const needed = min === 1 ? text : times(min, (n) => `{${n}}`)
  const more = max === Infinity ? `${text}*` : times(max - min, (n) => `{0,${n}}`)
  return { text: `(?:${needed}${more})` }
}

/** Postgres takes its own anchors apart where they go round; what is looked at from outside stays whole. */
const looped = (text: string): string => text.replaceAll('\\A', '(?<!.)').replaceAll('\\Z', '(?!.)')

const literalOf = (character: string): string => `\\x{${character.codePointAt(0)!.toString(16)}}`

type Ranges = readonly (readonly [number, number])[]

const last = 0x10ffff
const foldedOnly = 1

/** What RE2 takes for an atom under the flags in force. */
function rangesOf(atom: string, { i, s }: Flags): Ranges {
  const step = stepsOf(`(?${i ? 'i' : ''}${s ? 's' : ''}:${atom})`).find(({ runes }) => runes.length > 0)
  if (!step) return []
  const runes = Array.from(step.runes)
  if (runes.length === 1 && step.arg === foldedOnly) {
    // One character in both cases: with another beside it, RE2 lists what it folds to.
    const all = stepsOf(`(?i:[\\x{${runes[0]!.toString(16)}}\\x{${last.toString(16)}}])`)
    return pairs(Array.from(all.find((one) => one.runes.length > 1)!.runes)).filter(([from]) => from !== last)
  }
  return pairs(runes.length === 1 ? [runes[0]!, runes[0]!] : runes)
}

const pairs = (ends: readonly number[]): Ranges =>
  ends.flatMap((from, i) => (i % 2 === 0 ? [[from, ends[i + 1]!] as const] : []))

const written = new Map<string, string>()

function charactersOf(atom: string, flags: Flags): string {
  const key = `${flags.i} ${flags.s} ${atom}`
  const known = written.get(key)
  if (known !== undefined) return known
  const made = bracketOf(rangesOf(atom, flags))
  if (written.size >= 1000) written.clear()
  written.set(key, made)
  return made
}

/** Text holds no NUL. */
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
