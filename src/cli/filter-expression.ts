import { didYouMean } from '../core/suggest.ts'
import { isGroup, maxDepth, type TimeUnit, timeUnits } from '../filters/conditions/contract.ts'
import { type Condition, type ConditionGroup, type ConditionValue, findField } from '../filters/contract.ts'
import { usageError } from './exit-codes.ts'
import { type ValueShape, writtenOperators } from './filter-operators.ts'
import { isWord, quote, syntaxError, type Token, tokenize } from './filter-tokens.ts'

const spellings = Object.entries(writtenOperators).flatMap(([operator, { spellings: all, value: shape }]) =>
  all.map((words) => [words, operator, shape] as const),
)
const firstWords = [...new Set(spellings.map(([words]) => words.split(' ')[0]!))]

/**
 * The wire tree of an expression such as `status = online and (tags has any (prod, web) or hostname contains sql)`.
 * A group of one condition is replaced by that condition, except the outermost. @throws usage, with the position
 */
export function parseFilter(source: string): ConditionGroup {
  const parser = new Parser(source)
  const tree = parser.parseExpression(0)
  parser.finish()
  return isGroup(tree) ? tree : { operator: 'AND', conditions: [tree] }
}

type Node = Condition | ConditionGroup

class Parser {
  readonly #source: string
  readonly #tokens: Token[]
  #next = 0

  constructor(source: string) {
    this.#source = source
    this.#tokens = tokenize(source)
  }

  parseExpression(depth: number): Node {
    return this.#joined('or', 'OR', () => this.#joined('and', 'AND', () => this.#term(depth)))
  }

  finish(): void {
    if (this.#token.kind !== 'end') this.#expected('and, or, or the end of the filter')
  }

  get #token(): Token {
    return this.#tokens[this.#next]!
  }

  /** Takes the token when it is this word or mark. */
  #take(text: string): boolean {
    const { kind, text: found } = this.#token
    if ((kind !== 'word' && kind !== 'mark') || found.toLowerCase() !== text) return false
    this.#next += 1
    return true
  }

  #expected(what: string, hint?: string): never {
    const { kind, text, at } = this.#token
    const found = kind === 'end' ? 'the end' : `"${text}"`
    throw syntaxError(this.#source, at, `expected ${what}, found ${found}`, hint)
  }

  #joined(word: string, operator: 'AND' | 'OR', part: () => Node): Node {
    const conditions = [part()]
    while (this.#take(word)) conditions.push(part())
    return conditions.length === 1 ? conditions[0]! : { operator, conditions }
  }

  #term(depth: number): Node {
    const { at } = this.#token
    if (!this.#take('(')) return this.#condition()
    if (depth === maxDepth) {
      throw syntaxError(this.#source, at, `parentheses may be nested at most ${maxDepth} levels deep`)
    }
    const inner = this.parseExpression(depth + 1)
    if (!this.#take(')')) this.#expected('and, or, or )')
    return inner
  }

  #condition(): Condition {
    const { kind, text: field } = this.#token
    if ((kind !== 'word' && kind !== 'quoted') || (kind === 'word' && isReserved(field))) {
      this.#expected('a field or (')
    }
    this.#next += 1
    const [, operator, shape] = this.#operator()
    if (shape === 'none') return { field, operator }
    return { field, operator, value: this.#value(field, shape) }
  }

  /** The longest matching spelling, since some are prefixes of others. */
  #operator(): (typeof spellings)[number] {
    const fits = spellings.filter(([words]) =>
      words.split(' ').every((word, i) => {
        const { kind, text } = this.#tokens[this.#next + i] ?? this.#token
        return kind !== 'quoted' && text.toLowerCase() === word
      }),
    )
    const best = fits.sort(([a], [b]) => b.length - a.length)[0]
    if (!best) {
      const begun = this.#token.text.toLowerCase()
      const more = spellings.flatMap(([words]) => (words.startsWith(`${begun} `) ? [words] : []))
      if (more.length > 0) this.#expected(more.join(', '))
      this.#expected('an operator such as =, contains or in', didYouMean(begun, firstWords))
    }
    this.#next += best[0].split(' ').length
    return best
  }

  #value(field: string, shape: ValueShape): ConditionValue {
    if (shape === 'list') return this.#list()
    if (shape === 'window') return this.#window()
    if (shape === 'text') return this.#scalar('a value').text
    if (shape === 'scalar') return this.#typed(field)
    const from = this.#typed(field)
    if (!this.#take('and')) this.#expected('and')
    const to = this.#typed(field)
    const plain = (value: string | number | boolean) => (typeof value === 'boolean' ? String(value) : value)
    return { from: plain(from), to: plain(to) }
  }

  #scalar(what: string): Token {
    const token = this.#token
    const { kind, text } = token
    if (kind === 'word' && isReserved(text)) this.#expected(`${what}; as text it is written "${text}"`)
    if (kind !== 'word' && kind !== 'quoted') this.#expected(what)
    this.#next += 1
    return token
  }

  /** Converted to the type of the field, if known. Quoted values are always text. */
  #typed(field: string): string | number | boolean {
    const type = findField(field)?.type
    const what = type === 'number' ? 'a number' : type === 'boolean' ? 'true or false' : 'a value'
    const { kind, text, at } = this.#scalar(what)
    if (kind === 'quoted') return text
    if ((type === 'boolean' || type === undefined) && isTruth(text)) return text.toLowerCase() === 'true'
    if ((type === 'number' || type === undefined) && isNumber(text)) return Number(text)
    if (type === 'number' || type === 'boolean') {
      throw syntaxError(this.#source, at, `expected ${what} for ${field}, found "${text}"`)
    }
    return text
  }

  #list(): string[] {
    if (!this.#take('(')) this.#expected('( and values, such as (a, b)')
    const values: string[] = []
    if (this.#take(')')) return values
    do values.push(this.#scalar('a value').text)
    while (this.#take(','))
    if (!this.#take(')')) this.#expected(', or )')
    return values
  }

  #window(): { amount: number; unit: TimeUnit } {
    this.#take('last')
    const { text } = this.#token
    if (this.#token.kind !== 'word' || !isNumber(text)) this.#expected('a number, such as 7 days')
    this.#next += 1
    const unit = timeUnits.find((one) => [one, one.slice(0, -1)].includes(this.#token.text.toLowerCase()))
    if (unit === undefined) {
      this.#expected(timeUnits.join(', '), didYouMean(this.#token.text, timeUnits))
    }
    this.#next += 1
    return { amount: Number(text), unit }
  }
}

const isReserved = (word: string): boolean => ['and', 'or', 'not'].includes(word.toLowerCase())
const isTruth = (word: string): boolean => ['true', 'false'].includes(word.toLowerCase())
const isNumber = (word: string): boolean => /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(word)

/** A tree as an expression that reads back as the same tree. @throws usage when it has no expression */
export function printFilter(tree: ConditionGroup): string {
  return printNode(simplify(tree), undefined)
}

function printNode(node: Node, within: 'AND' | 'OR' | undefined): string {
  if (!isGroup(node)) return printCondition(node)
  const { operator, conditions } = node
  const text = conditions.map((one) => printNode(one, operator)).join(operator === 'AND' ? ' and ' : ' or ')
  return within === undefined || (within === 'OR' && operator === 'AND') ? text : `(${text})`
}

/** Without groups of one condition. */
export function simplify(tree: ConditionGroup): Node {
  const conditions = tree.conditions.map((one) => (isGroup(one) ? simplify(one) : one))
  return conditions.length === 1 ? conditions[0]! : { operator: tree.operator, conditions }
}

function printCondition({ field, operator, value }: Condition): string {
  const spelling = spellings.find(([, name]) => name === operator)
  const what = spelling && printValue(field, spelling[2], value)
  if (!spelling || what === undefined) {
    throw usageError(`${operator} of ${field} cannot be written as an expression`, 'use --json')
  }
  const name = isWord(field) && !isReserved(field) ? field : quote(field)
  return [name, spelling[0], what].filter((part) => part !== '').join(' ')
}

function printValue(field: string, shape: ValueShape, value: ConditionValue | undefined): string | undefined {
  if (shape === 'none') return value === undefined ? '' : undefined
  if (shape === 'list') return Array.isArray(value) ? `(${value.map(asWord).join(', ')})` : undefined
  if (shape === 'text') return typeof value === 'string' ? asWord(value) : undefined
  if (value === undefined || Array.isArray(value)) return undefined
  if (shape === 'scalar') return typeof value === 'object' ? undefined : asValue(field, value)
  if (typeof value !== 'object') return undefined
  if (shape === 'window') return 'amount' in value ? formatWindow(value) : undefined
  return 'from' in value ? `${asValue(field, value.from)} and ${asValue(field, value.to)}` : undefined
}

/** `1 day`, `7 days`. */
export const formatWindow = ({ amount, unit }: { amount: number; unit: TimeUnit }): string =>
  `${amount} ${amount === 1 ? unit.slice(0, -1) : unit}`

const asWord = (text: string): string => (isWord(text) && !isReserved(text) ? text : quote(text))

/** Text that would parse as something else is quoted. */
function asValue(field: string, value: string | number | boolean): string {
  if (typeof value !== 'string') return String(value)
  const type = findField(field)?.type
  const isOther =
    type === undefined ? isTruth(value) || isNumber(value) : type === 'number' || type === 'boolean'
  return isOther ? quote(value) : asWord(value)
}
