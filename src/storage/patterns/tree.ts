/**
 * A regular expression for Postgres. Loops are simplified as they are built, by identities that hold for every
 * expression with anchors in it: Postgres takes seconds over loops that can match the empty string.
 */
export type Node =
  /** One character of a set. */
  | { kind: 'one'; text: string }
  /** Consumes nothing: an anchor or a lookaround. */
  | { kind: 'test'; text: string }
  | { kind: 'all'; parts: readonly Node[] }
  | { kind: 'any'; parts: readonly Node[] }
  | { kind: 'times'; part: Node; min: number; max: number }

export const charNode = (text: string): Node => ({ kind: 'one', text })
export const assertionNode = (text: string): Node => ({ kind: 'test', text })

export function sequence(parts: readonly Node[]): Node {
  const some = parts.filter((part) => !isNothing(part))
  return some.length === 1 ? some[0]! : { kind: 'all', parts: some }
}

export function alternation(parts: readonly Node[]): Node {
  return parts.length === 1 ? parts[0]! : { kind: 'any', parts }
}

const nothing = sequence([])
function isNothing(node: Node | undefined): boolean {
  return node?.kind === 'all' && node.parts.length === 0
}

/** The condition under which the node matches the empty string; undefined when it never does. */
function emptyWhere(node: Node): Node | undefined {
  switch (node.kind) {
    case 'one':
      return undefined
    case 'test':
      return node
    case 'all': {
      const parts = node.parts.map(emptyWhere)
      return parts.every(isDefined) ? sequence(parts) : undefined
    }
    case 'any': {
      const parts = node.parts.map(emptyWhere).filter(isDefined)
      return parts.some(isNothing) ? nothing : parts.length === 0 ? undefined : alternation(parts)
    }
    case 'times':
      return node.min === 0 ? nothing : emptyWhere(node.part)
  }
}

const isDefined = (node: Node | undefined): node is Node => node !== undefined

/** Whether it matches the empty string anywhere. */
const isOptional = (node: Node): boolean => isNothing(emptyWhere(node))

export function repetition(part: Node, from: number, max: number): Node {
  const min = isOptional(part) ? 0 : from
  if (max === 0 || isNothing(part)) return nothing
  // An assertion that holds once holds again.
  if (part.kind === 'test') return min === 0 ? nothing : part
  if (max === 1 && (min === 1 || isOptional(part))) return part
  if (min === 0 && (max === Infinity || isStar(part))) {
    const inner = unlooped(part)
    return isNothing(inner) ? nothing : { kind: 'times', part: inner, min: 0, max: Infinity }
  }
  const empty = emptyWhere(part)
  if (empty && max === Infinity) {
    const inner = unlooped(part)
    if (isNothing(inner)) return empty
    if (min === 1) return alternation([empty, { kind: 'times', part: inner, min: 1, max }])
    return sequence([repetition(part, min, min), repetition(inner, 0, max)])
  }
  return { kind: 'times', part, min, max }
}

const isStar = (node: Node): boolean => node.kind === 'times' && node.min === 0 && node.max === Infinity

/** The simplest node that gives the same result in a loop of any number of rounds that each consume something. */
function unlooped(node: Node): Node {
  switch (node.kind) {
    case 'times':
      return node.min <= 1 ? unlooped(node.part) : consuming(node)
    case 'any':
      return anyBut(node.parts.map(unlooped))
    case 'all':
      return node.parts.every(isOptional) ? anyBut(node.parts.map(unlooped)) : consuming(node)
    default:
      return consuming(node)
  }
}

/** Only the matches that consume something; nothing when there are none. */
function consuming(node: Node): Node {
  if (!emptyWhere(node)) return node
  if (weight(node) === 0) return nothing
  switch (node.kind) {
    case 'any':
      return anyBut(node.parts.map(consuming))
    case 'all': {
      const at = heaviest(node.parts)
      const [before, part, after] = [node.parts.slice(0, at), node.parts[at]!, node.parts.slice(at + 1)]
      const some = consuming(part)
      return anyBut([
        sequence([...before, some, ...after]),
        consuming(sequence([...before, emptyWhere(part)!, ...after])),
      ])
    }
    case 'times': {
      const { part, min, max } = node
      const some = consuming(part)
      if (min <= 1) return repetition(some, 1, max)
      // A round that matches the empty string may stand for any number of the remaining rounds.
      return anyBut([
        sequence([some, repetition(part, min - 1, max - 1)]),
        sequence([emptyWhere(part)!, repetition(some, 1, max - 1)]),
      ])
    }
    default:
      return nothing
  }
}

/** Index of the heaviest part. It is written once; a lighter part would be written once for each heavier one. */
function heaviest(parts: readonly Node[]): number {
  const weights = parts.map(weight)
  return weights.indexOf(Math.max(...weights))
}

/** Number of characters written in it; 0: it consumes nothing. */
function weight(node: Node): number {
  switch (node.kind) {
    case 'one':
      return 1
    case 'test':
      return 0
    case 'times':
      return weight(node.part)
    default:
      return node.parts.reduce((sum, part) => sum + weight(part), 0)
  }
}

function anyBut(parts: readonly Node[]): Node {
  const some = parts.filter((part) => !isNothing(part))
  return some.length === 0 ? nothing : alternation(some)
}

export function printNode(node: Node, looped = false): string {
  switch (node.kind) {
    case 'one':
      return node.text
    case 'test':
      return looped ? asLookaround(node.text) : node.text
    case 'any':
      return `(?:${node.parts.map((part) => printNode(part, looped)).join('|')})`
    case 'all':
      return `(?:${node.parts.map((part) => printNode(part, looped)).join('')})`
    case 'times':
      return repeated(printNode(node.part, looped || node.max > 1), node.min, node.max)
  }
}

/** Postgres takes its own anchors apart inside loops; a lookaround stays whole. */
const asLookaround = (text: string): string => text.replaceAll('\\A', '(?<!.)').replaceAll('\\Z', '(?!.)')

/** The largest repetition count of Postgres. */
const maxRepeats = 255

function repeated(text: string, min: number, max: number): string {
  if (max === Infinity && min <= 1) return `(?:${text}${min === 0 ? '*' : '+'})`
  const often = (count: number, from: (n: number) => string) => {
    const whole = `${text}${from(maxRepeats)}`.repeat(Math.floor(count / maxRepeats))
    return count % maxRepeats === 0 ? whole : `${whole}${text}${from(count % maxRepeats)}`
  }
  const needed = min === 1 ? text : often(min, (n) => `{${n}}`)
  const more = max === Infinity ? `${text}*` : often(max - min, (n) => `{0,${n}}`)
  return `(?:${needed}${more})`
}
