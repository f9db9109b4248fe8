/**
 * A regular expression as Postgres will read it. What goes round is made plain as it is built, by laws that hold for
 * every expression with anchors in it: Postgres takes seconds over loops in which nothing need be taken.
 */
export type Node =
  /** One character of some. */
  | { kind: 'one'; text: string }
  /** Takes nothing: an anchor or a look around. */
  | { kind: 'test'; text: string }
  | { kind: 'all'; parts: readonly Node[] }
  | { kind: 'any'; parts: readonly Node[] }
  | { kind: 'times'; part: Node; min: number; max: number }

export const one = (text: string): Node => ({ kind: 'one', text })
export const test = (text: string): Node => ({ kind: 'test', text })

export function all(parts: readonly Node[]): Node {
  return parts.length === 1 ? parts[0]! : { kind: 'all', parts }
}

export function any(parts: readonly Node[]): Node {
  return parts.length === 1 ? parts[0]! : { kind: 'any', parts }
}

const nothing = all([])
const isNothing = (node: Node): boolean => node.kind === 'all' && node.parts.length === 0

/** Whether it matches where it takes nothing, whatever is around. */
function isOptional(node: Node): boolean {
  switch (node.kind) {
    case 'all':
      return node.parts.every(isOptional)
    case 'any':
      return node.parts.some(isOptional)
    case 'times':
      return node.min === 0 || isOptional(node.part)
    default:
      return false
  }
}

export function times(part: Node, least: number, max: number): Node {
  const min = isOptional(part) ? 0 : least
  if (max === 0 || isNothing(part)) return nothing
  // What takes nothing is true the second time as well.
  if (part.kind === 'test') return min === 0 ? nothing : part
  if (max === 1 && (min === 1 || isOptional(part))) return part
  if (min === 0 && (max === Infinity || isStar(part))) {
    const inner = unlooped(part)
    return isNothing(inner) ? nothing : { kind: 'times', part: inner, min: 0, max: Infinity }
  }
  return { kind: 'times', part, min, max }
}

const isStar = (node: Node): boolean => node.kind === 'times' && node.min === 0 && node.max === Infinity

/** The plainest that gives the same when it goes round any number of times. */
function unlooped(node: Node): Node {
  switch (node.kind) {
    case 'test':
      return nothing
    case 'times':
      return node.min <= 1 ? unlooped(node.part) : node
    case 'any':
      return anyBut(node.parts)
    case 'all':
      return node.parts.every(isOptional) ? anyBut(node.parts) : node
    default:
      return node
  }
}

const anyBut = (parts: readonly Node[]): Node => {
  const some = parts.map(unlooped).filter((part) => !isNothing(part))
  return some.length === 0 ? nothing : any(some)
}

export function written(node: Node, looped = false): string {
  switch (node.kind) {
    case 'one':
      return node.text
    case 'test':
      return looped ? lookedAt(node.text) : node.text
    case 'any':
      return `(?:${node.parts.map((part) => written(part, looped)).join('|')})`
    case 'all':
      return `(?:${node.parts.map((part) => written(part, looped)).join('')})`
    case 'times':
      return repeated(written(node.part, looped || node.max > 1), node.min, node.max)
  }
}

/** Postgres takes its own anchors apart where they go round; what is looked at from outside stays whole. */
const lookedAt = (text: string): string => text.replaceAll('\\A', '(?<!.)').replaceAll('\\Z', '(?!.)')

/** Postgres counts to 255. */
const mostRepeats = 255

function repeated(text: string, min: number, max: number): string {
  const often = (count: number, from: (n: number) => string) => {
    const whole = `${text}${from(mostRepeats)}`.repeat(Math.floor(count / mostRepeats))
    return count % mostRepeats === 0 ? whole : `${whole}${text}${from(count % mostRepeats)}`
  }
  const needed = min === 1 ? text : often(min, (n) => `{${n}}`)
  const more = max === Infinity ? `${text}*` : often(max - min, (n) => `{0,${n}}`)
  return `(?:${needed}${more})`
}
