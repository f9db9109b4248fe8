import { characterClass, literalOf, type PatternFlags } from './characters.ts'
import { alternation, assertionNode, charNode, type Node, printNode, repetition, sequence } from './tree.ts'

/**
 * Translates a pattern in RE2 syntax to a Postgres regular expression that matches the same texts. Only the structure
 * is translated: groups, alternatives, repetitions, anchors and flags. RE2 itself says which characters an atom or a
 * class matches, one at a time, and they are written out as code points, so neither the locale of the database nor
 * its definition of letters matters. `re2` must accept the pattern.
 */
export function toPostgresPattern(pattern: string): string {
  const known = ready.get(pattern)
  if (known !== undefined) return known
  const made = printNode(new Translation(pattern).whole())
  if (ready.size >= 100) ready.delete(ready.keys().next().value!)
  ready.set(pattern, made)
  return made
}

const ready = new Map<string, string>()

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

  whole(): Node {
    return this.#alternatives({ i: false, m: false, s: false })
  }

  /** Parses up to the end or the closing parenthesis. Flags set inside hold to its end, across `|` as well. */
  #alternatives(flags: PatternFlags): Node {
    const alternatives: Node[][] = [[]]
    for (let next = this.#peek(); next !== '' && next !== ')'; next = this.#peek()) {
      const pieces = alternatives.at(-1)!
      if (next === '|') {
        this.#at += 1
        alternatives.push([])
      } else if (next === '(') this.#group(pieces, flags)
      else if (next === '\\' && this.#pattern[this.#at + 1] === 'Q') this.#quoted(pieces, flags)
      else if (!this.#repetition(pieces)) pieces.push(this.#atom(flags))
    }
    return alternation(alternatives.map(sequence))
  }

  #peek(): string {
    return this.#pattern.slice(this.#at, this.#at + 1)
  }

  /** Consumes what matches here. */
  #take(what: RegExp): RegExpExecArray | undefined {
    const found = new RegExp(what.source, 'suy')
    found.lastIndex = this.#at
    const taken = found.exec(this.#pattern) ?? undefined
    this.#at += taken?.[0].length ?? 0
    return taken
  }

  #group(pieces: Node[], flags: PatternFlags): void {
    const set = this.#take(/\(\?([imsU]*)(?:-([imsU]+))?([:)])/)
    const inner = set?.[3] === ')' ? flags : { ...flags }
    for (const letter of set?.[1] ?? '') if (letter in inner) inner[letter as keyof PatternFlags] = true
    for (const letter of set?.[2] ?? '') if (letter in inner) inner[letter as keyof PatternFlags] = false
    if (set?.[3] === ')') return
    if (!set) this.#take(/\((?:\?P?<[^>]*>)?/)
    pieces.push(this.#alternatives(inner))
    this.#at += 1
  }

  #quoted(pieces: Node[], flags: PatternFlags): void {
    this.#at += 2
    const end = this.#pattern.indexOf('\\E', this.#at)
    const literal = this.#pattern.slice(this.#at, end < 0 ? undefined : end)
    this.#at = end < 0 ? this.#pattern.length : end + 2
    pieces.push(...[...literal].map((character) => charNode(characterClass(literalOf(character), flags))))
  }

  /** Applies a repetition to the last piece; greedy or lazy makes no difference to whether a text matches. */
  #repetition(pieces: Node[]): boolean {
    const found = this.#take(/([*+?]|\{(\d+)(,(\d*))?\})\??/)
    if (!found) return false
    const piece = pieces.pop()!
    const [, sign, from, open, to] = found
    const signs: Record<string, [number, number]> = { '*': [0, Infinity], '+': [1, Infinity], '?': [0, 1] }
    const [min, max] = signs[sign!] ?? [
      Number(from),
      open === undefined ? Number(from) : to === '' ? Infinity : Number(to),
    ]
    pieces.push(repetition(piece, min, max))
    return true
  }

  #atom(flags: PatternFlags): Node {
    const anchor = this.#take(/\^|\$|\\[AzbB]/)?.[0]
    if (anchor !== undefined) return assertionNode(anchors(flags)[anchor]!)
    const escaped = /\\(?:[pP](?:\{[^}]*\}|.)|x(?:\{[^}]*\}|..)|[0-7]{1,3}|.)/
    const atom = this.#take(/\[/) ? this.#bracket() : (this.#take(escaped) ?? this.#take(/./))![0]
    const isPlain = atom !== '.' && [...atom].length === 1
    return charNode(characterClass(isPlain ? literalOf(atom) : atom, flags))
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

const anchors = ({ m }: PatternFlags): Record<string, string> => ({
  '^': m ? lineStart : '\\A',
  $: m ? lineEnd : '\\Z',
  '\\A': '\\A',
  '\\z': '\\Z',
  '\\b': boundary,
  '\\B': noBoundary,
})
