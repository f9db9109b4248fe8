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

/** What must be true where it takes nothing; undefined when it always takes something. */
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

/** Whether it matches where it takes nothing, whatever is around. */
const isOptional = (node: Node): boolean => isNothing(emptyWhere(node))

export function repetition(part: Node, least: number, max: number): Node {
  const min = isOptional(part) ? 0 : least
  if (max === 0 || isNothing(part)) return nothing
  // What takes nothing is true the second time as well.
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

/** The plainest that gives the same when it goes round any number of times, and takes something each time. */
function unlooped(node: Node): Node {
  switch (node.kind) {
    case 'times':
      return node.min <= 1 ? unlooped(node.part) : taking(node)
    case 'any':
      return anyBut(node.parts.map(unlooped))
    case 'all':
      return node.parts.every(isOptional) ? anyBut(node.parts.map(unlooped)) : taking(node)
    default:
      return taking(node)
  }
}

/** Of its matches those that take something; nothing when there are none. */
function taking(node: Node): Node {
  if (!emptyWhere(node)) return node
  if (weight(node) === 0) return nothing
  switch (node.kind) {
    case 'any':
      return anyBut(node.parts.map(taking))
    case 'all': {
      const at = heaviest(node.parts)
      const [before, part, after] = [node.parts.slice(0, at), node.parts[at]!, node.parts.slice(at + 1)]
      const some = taking(part)
      return anyBut([
        sequence([...before, some, ...after]),
        taking(sequence([...before, emptyWhere(part)!, ...after])),
      ])
    }
    case 'times': {
      const { part, min, max } = node
      const some = taking(part)
      if (min <= 1) return repetition(some, 1, max)
      // Once it has taken nothing, it may have done so as often as is left to do.
      return anyBut([
        sequence([some, repetition(part, min - 1, max - 1)]),
        sequence([emptyWhere(part)!, repetition(some, 1, max - 1)]),
      ])
    }
    default:
      return nothing
  }
}

/** Where the part is that takes most. It is written once, where a lighter one is written for each that is heavier. */
function heaviest(parts: readonly Node[]): number {
  const weights = parts.map(weight)
  return weights.indexOf(Math.max(...weights))
}

/** How many characters are written in it; none: it takes nothing. */
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
      return looped ? lookedAt(node.text) : node.text
    case 'any':
      return `(?:${node.parts.map((part) => printNode(part, looped)).join('|')})`
    case 'all':
      return `(?:${node.parts.map((part) => printNode(part, looped)).join('')})`
    case 'times':
      return repeated(printNode(node.part, looped || node.max > 1), node.min, node.max)
  }
}

/** Postgres takes its own anchors apart where they go round; what is looked at from outside stays whole. */
const lookedAt = (text: string): string => text.replaceAll('\\A', '(?<!.)').replaceAll('\\Z', '(?!.)')

/** Postgres counts to 255. */
const mostRepeats = 255

function repeated(text: string, min: number, max: number): string {
  if (max === Infinity && min <= 1) return `(?:${text}${min === 0 ? '*' : '+'})`
  const often = (count: number, from: (n: number) => string) => {
    const whole = `${text}${from(mostRepeats)}`.repeat(Math.floor(count / mostRepeats))
    return count % mostRepeats === 0 ? whole : `${whole}${text}${from(count % mostRepeats)}`
  }
  const needed = min === 1 ? text : often(min, (n) => `{${n}}`)
  const more = max === Infinity ? `${text}*` : often(max - min, (n) => `{0,${n}}`)
  return `(?:${needed}${more})`
}
