import {
  type Alias,
  type Document,
  type ErrorCode,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  type Scalar,
  visit,
  type YAMLMap,
} from 'yaml'
import { maxJsonDepth } from '../../core/json.ts'
import type { Path } from './variables.ts'

/** A fault and its place; `file` is empty where it is in no file. */
export type FileFault = { file: string; line: number; column: number; message: string }

/** With its aliases written out a file may be as long as any file. */
const maxLength = 16 * 1024 * 1024

/** Tags of what JSON has as well. */
const textTags = new Set(['!', standard('str')])
const otherTags = new Set(['!', ...['map', 'seq', 'int', 'float', 'bool', 'null'].map(standard)])
/** What to write in place of other tags. */
const instead = new Map([
  [standard('set'), 'write a list'],
  [standard('omap'), 'write a map'],
  [standard('pairs'), 'write a list of maps'],
  [standard('binary'), `write a text, or \${file:PATH}`],
  [standard('timestamp'), 'write the time in quotes'],
])

/** Faults whose text is for whoever writes a program. */
const syntaxFaults: Partial<Record<ErrorCode, string>> = {
  MULTIPLE_DOCS: 'a file has one document: write another file for what follows',
  RESOURCE_EXHAUSTION: `must be nested at most ${maxJsonDepth} levels deep`,
}

function standard(name: string): string {
  return `tag:yaml.org,2002:${name}`
}

/** A file of YAML, or of JSON, which is YAML as well. */
export class Source {
  readonly document: Document
  readonly file: string
  readonly #text: string
  readonly #lines = new LineCounter()
  readonly #targets = new Map<Alias, Node>()

  constructor(file: string, text: string) {
    this.file = file
    this.#text = text
    this.document = parseDocument(text, { lineCounter: this.#lines, merge: true })
    const anchors = new Map<string, Node>()
    visit(this.document, {
      Node: (_, node) => {
        if (!isAlias(node)) {
          if (node.anchor !== undefined) anchors.set(node.anchor, node)
          return
        }
        const target = anchors.get(node.source)
        if (target) this.#targets.set(node, target)
      },
    })
  }

  /** What keeps the file from being read: without any, `json` gives all it says, in bounded time and memory. */
  faults(): FileFault[] {
    const ofSyntax = this.document.errors.map(({ code, message, pos }) => {
      const [summary = ''] = message.split(/ at line \d+|:?\n/)
      return { file: this.file, ...this.#position(pos[0]), message: syntaxFaults[code] ?? summary }
    })
    if (ofSyntax.length > 0) return ofSyntax
    // Each of them needs what those before it rule out.
    for (const find of [() => this.#aliasFaults(), () => this.#sizeFaults()]) {
      const faults = find()
      if (faults.length > 0) return faults
    }
    return this.#jsonFaults()
  }

  /** What an alias stands for. */
  target(alias: Alias): Node | undefined {
    return this.#targets.get(alias)
  }

  json(node: unknown): unknown {
    if (isAlias(node)) return this.json(this.target(node))
    if (isSeq(node)) return node.items.map((item) => this.json(item))
    if (!isMap(node)) return isScalar(node) ? node.value : null
    const values = new Map<string, unknown>()
    for (const { key, value } of node.items) {
      if (!isMergeKey(key)) {
        values.set(this.keyOf(key), this.json(value))
        continue
      }
      for (const source of this.#mergedBy(value))
        for (const [name, merged] of Object.entries(this.json(source) as object))
          if (!values.has(name)) values.set(name, merged)
    }
    return Object.fromEntries(values)
  }

  /** The pair of a map whose key has a name. */
  pairOf(map: YAMLMap, name: string): Pair | undefined {
    return map.items.find(({ key }) => !isMergeKey(key) && this.keyOf(key) === name)
  }

  /** The name of a key in JSON. */
  keyOf(key: unknown): string {
    const node = this.#resolved(key)
    return String(isScalar(node) ? node.value : node)
  }

  /** The place of a value, or of the nearest thing around it that is there. */
  placeOf(path: Path): { line: number; column: number } {
    let node: unknown = this.document.contents
    let offset = offsetOf(node)
    for (const step of path) {
      const within = this.#resolved(node)
      if (isMap(within)) {
        const pair = this.pairOf(within, String(step))
        if (!pair) break
        offset = offsetOf(pair.key)
        node = pair.value
      } else if (isSeq(within) && within.items[Number(step)] !== undefined) {
        node = within.items[Number(step)]
        offset = offsetOf(node)
      } else break
    }
    return this.#position(offset)
  }

  /** How many lines right above a node are comments alone. */
  commentLinesAbove(node: Node): number {
    const above = this.#text.slice(0, offsetOf(node)).split('\n').slice(0, -1)
    return above.length - 1 - above.findLastIndex((line) => !/^\s*#/.test(line))
  }

  #position(offset: number) {
    const { line, col } = this.#lines.linePos(offset)
    return { line, column: col }
  }

  #fault(node: unknown, message: string): FileFault {
    return { file: this.file, ...this.#position(offsetOf(node)), message }
  }

  #resolved(node: unknown): unknown {
    return isAlias(node) ? this.target(node) : node
  }

  /** What `<<` takes: a map, or a list of some. */
  #mergedBy(value: unknown): unknown[] {
    const source = this.#resolved(value)
    return (isSeq(source) ? source.items : [source]).map((one) => this.#resolved(one))
  }

  /** An alias to what it is a part of would have no end. */
  #aliasFaults(): FileFault[] {
    const faults: FileFault[] = []
    visit(this.document, {
      Alias: (_, alias, around) => {
        const target = this.target(alias)
        if (target && !around.includes(target)) return
        const message = target
          ? `*${alias.source} refers to what it is a part of: write out what is meant`
          : `there is no anchor &${alias.source} before this alias`
        faults.push(this.#fault(alias, message))
      },
    })
    return faults
  }

  /** Aliases of aliases become more and more text. */
  #sizeFaults(): FileFault[] {
    const faults: FileFault[] = []
    const sizes = new Map<unknown, Size>()
    const measure = (node: unknown): Size => {
      const known = sizes.get(node)
      if (known) return known
      const size = { length: isScalar(node) ? 1 + String(node.source ?? '').length : 1, depth: 0 }
      for (const { part, levels } of partsOf(node)) {
        const { length, depth } = measure(this.#resolved(part))
        size.length += length
        size.depth = Math.max(size.depth, depth + levels)
        if (!isAlias(part) || faults.length > 0) continue
        if (size.length > maxLength)
          faults.push(
            this.#fault(
              part,
              `with all aliases up to *${part.source} written out there are more than ${maxLength} characters: use fewer`,
            ),
          )
        else if (size.depth > maxJsonDepth)
          faults.push(
            this.#fault(
              part,
              `with *${part.source} there are more than ${maxJsonDepth} levels here: use fewer`,
            ),
          )
      }
      sizes.set(node, size)
      return size
    }
    measure(this.document.contents)
    return faults
  }

  /** What JSON does not have would become something else, or nothing, on the way to the service. */
  #jsonFaults(): FileFault[] {
    const faults: FileFault[] = []
    const fault = (node: unknown, message: string | undefined) => {
      if (message !== undefined) faults.push(this.#fault(node, message))
    }
    visit(this.document, {
      Node: (role, node) => {
        if (isAlias(node) || (role === 'key' && isMergeKey(node))) return undefined
        const { tag } = node
        // What a tag does not fit is read as a text.
        const fitting = isScalar(node) && typeof node.value === 'string' ? textTags : otherTags
        if (tag !== undefined && !fitting.has(tag)) {
          fault(
            node,
            `the tag ${tag.replace(standard(''), '!!')} is not read here: ${instead.get(tag) ?? 'leave it out'}`,
          )
          return visit.SKIP
        }
        if (isMap(node)) {
          const names = new Set<string>()
          for (const pair of node.items) fault(pair.key ?? node, this.#keyFault(pair, names))
        } else if (isScalar(node) && role !== 'key') fault(node, valueFault(node))
        return undefined
      },
    })
    return faults
  }

  /** `names`: of the keys before it, and then with it. */
  #keyFault({ key, value }: Pair, names: Set<string>): string | undefined {
    if (isMergeKey(key))
      return this.#mergedBy(value).every(isMap)
        ? undefined
        : '<< takes a map, or a list of maps: write one, or "<<" for a key'
    const node = this.#resolved(key)
    if (!isScalar(node)) return 'a key must be a text: write it in quotes'
    const name = this.keyOf(node)
    if (typeof node.value !== 'string' && name !== node.source)
      return `this key is read as ${name}: write it in quotes`
    if (names.has(name)) return `the key ${JSON.stringify(name)} is here twice: leave one out`
    names.add(name)
    const within = this.#resolved(value)
    const isPrototype = name === 'constructor' && isMap(within) && within.has('prototype')
    return name === '__proto__' || isPrototype
      ? `the service takes no key ${name} here: use another`
      : undefined
  }
}

type Size = { length: number; depth: number }

/** `levels` that a part is below the node. */
function partsOf(node: unknown): { part: unknown; levels: number }[] {
  if (isSeq(node)) return node.items.map((part) => ({ part, levels: 1 }))
  if (!isMap(node)) return []
  return node.items.flatMap(({ key, value }) => [
    { part: key, levels: 0 },
    { part: value, levels: isMergeKey(key) ? 0 : 1 },
  ])
}

function valueFault({ value, source = '' }: Scalar): string | undefined {
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return `JSON has no number ${source}: write another, or null for none`
    const isInteger = /^[-+]?(0x[\da-f]+|0o[0-7]+|\d+)$/i.test(source)
    if (isInteger && !Number.isSafeInteger(value))
      return `${source} would lose digits: write at most ${Number.MAX_SAFE_INTEGER}, or a text in quotes`
    if (!source.includes(':')) return undefined
  } else if (value === null || typeof value !== 'object') return undefined
  return `${source} is read as a time: write it in quotes`
}

/** A `<<` that is not in quotes. */
export const isMergeKey = (key: unknown): boolean => isScalar(key) && typeof key.value === 'symbol'

const offsetOf = (node: unknown): number => (node as Node | null)?.range?.[0] ?? 0
