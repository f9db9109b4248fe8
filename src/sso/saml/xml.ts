import { createRequire } from 'node:module'
import { SsoFailure } from '../failures.ts'

const references: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
  '\t': '&#9;',
  '\n': '&#10;',
  '\r': '&#13;',
}

/** For text and for attributes, in which unescaped line breaks are lost. */
export const escapeXml = (text: string): string =>
  text.replace(/[&<>"'\t\n\r]/g, (character) => references[character]!)

/**
 * A parsed element: without comments, white space between attributes or anything that could be read in two
 * ways.
 */
export type Element = {
  namespace: string | null
  name: string
  /** By their names as written; almost all have no namespace. */
  attributes: ReadonlyMap<string, string>
  children: readonly Element[]
  /** All text, also that of child elements; a comment does not split it. */
  text: string
  /** The DOM node, for the library that verifies signatures. */
  node: object
}

/** The part of the DOM used here: its own types would add those of a browser to the whole program. */
type DomNode = { readonly nodeType: number; readonly data?: string }
type DomElement = DomNode & {
  readonly namespaceURI?: string | null
  readonly localName: string
  readonly attributes: ArrayLike<{ readonly name: string; readonly value: string }>
  readonly childNodes: ArrayLike<DomNode>
}
type Report = (message: string) => never
type Dom = {
  DOMParser: new (options: {
    errorHandler: { warning: Report; error: Report; fatalError: Report }
  }) => { parseFromString(text: string, type: string): { documentElement: DomElement } }
}

const [elementNode, textNode, cdataNode] = [1, 3, 4]

let loaded: Dom | undefined

/** The parser that xml-crypto uses: two parsers could read two different documents from the same bytes. */
function dom(): Dom {
  if (loaded) return loaded
  const ofXmlCrypto = createRequire(createRequire(import.meta.url).resolve('xml-crypto'))
  loaded = ofXmlCrypto('@xmldom/xmldom') as Dom
  return loaded
}

/** @throws SsoFailure saml_malformed */
export function parseXml(text: string): Element {
  checkWellFormed(text)
  let fault = ''
  const report: Report = (message) => {
    fault ||= message.replaceAll(/^\[xmldom \w+\]\s*|\n@#.*$/gs, '')
    throw new Error(fault)
  }
  const errorHandler = { warning: report, error: report, fatalError: report }
  const parser = new (dom().DOMParser)({ errorHandler })
  try {
    return elementOf(parser.parseFromString(text, 'text/xml').documentElement)
  } catch {
    // `fault` has the message of the parser without its prefix.
    throw malformedXml(fault.slice(0, 200) || 'it is no XML')
  }
}

function elementOf(node: DomElement): Element {
  const children: Element[] = []
  let text = ''
  for (const child of Array.from(node.childNodes)) {
    if (child.nodeType === textNode || child.nodeType === cdataNode) text += child.data ?? ''
    if (child.nodeType !== elementNode) continue
    const element = elementOf(child as DomElement)
    children.push(element)
    text += element.text
  }
  const attributes = new Map(Array.from(node.attributes, ({ name, value }) => [name, value]))
  return { namespace: node.namespaceURI ?? null, name: node.localName, attributes, children, text, node }
}

const space = '[ \\t\\r\\n]'
const word = '[\\p{L}_][\\p{L}\\p{N}._-]*'
const name = `${word}(?::${word})?`
const value = `"[^<"]*"|'[^<']*'`
const token = new RegExp(
  [
    '<!--(?:[^-]|-[^-])*-->',
    '<!\\[CDATA\\[[^]*?\\]\\]>',
    `</(?<end>${name})${space}*>`,
    `<(?<start>${name})(?<attributes>(?:${space}+${name}${space}*=${space}*(?:${value}))*)${space}*(?<empty>/?)>`,
    '(?<text>[^<]+)',
  ].join('|'),
  'uy',
)
const declaration = new RegExp(`^<\\?xml${space}[^<>?]*\\?>`, 'u')
const illegal = /[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/u
const unknownEntity = /&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)/

/**
 * The parser turns these references into characters that XML does not allow, while the signed text has others
 * (XML 1.0, 4.1).
 */
const refersToIllegal = (text: string): boolean =>
  text.includes('&#') &&
  [...text.matchAll(/&#(x?)([0-9A-Fa-f]+);/g)].some(([, hex, digits]) => {
    const code = Number.parseInt(digits!, hex ? 16 : 10)
    return code > 0x10ffff || illegal.test(String.fromCodePoint(code))
  })

/** Far above any real sign-in. A larger document is an attack on CPU time: some steps take quadratic time. */
const maxCounts = { depth: 64, elements: 5_000, attributes: 10_000, asides: 500 }

/**
 * The parser is lenient, so malformed input is refused before it: mismatched tags, undefined entity references
 * (XML 1.0, 2.1). No document type is allowed, which could declare entities, nor a processing instruction,
 * which the canonicalization treats as text.
 * @throws SsoFailure saml_malformed
 */
function checkWellFormed(text: string): void {
  if (illegal.test(text)) throw malformedXml('it holds a character that XML does not allow')
  const open: string[] = []
  const count = { roots: 0, elements: 0, attributes: 0, asides: 0 }
  token.lastIndex = declaration.exec(text)?.[0].length ?? 0
  while (token.lastIndex < text.length) {
    const at = token.lastIndex
    const groups = token.exec(text)?.groups
    if (groups === undefined) throw malformedXml(`it is no XML at ${quoteForDetail(text.slice(at, at + 40))}`)
    const { start, end, empty, attributes = '', text: between } = groups
    if (unknownEntity.test(between ?? attributes)) throw malformedXml('it refers to an entity')
    if (refersToIllegal(between ?? attributes))
      throw malformedXml('it refers to a character that XML does not allow')
    if (start !== undefined) {
      if (open.length === 0) count.roots += 1
      count.elements += 1
      count.attributes += attributes.split('=').length - 1
      if (empty === '') open.push(start)
    } else if (end !== undefined) {
      if (open.pop() !== end) throw malformedXml(`</${end}> ends what has not begun`)
    } else if (between === undefined) count.asides += 1
    else if (open.length === 0 && /[^ \t\r\n]/.test(between))
      throw malformedXml('it has text outside its element')
    checkSize(open.length, count)
  }
  if (open.length > 0) throw malformedXml(`it ends inside <${open.at(-1)}>`)
  if (count.roots !== 1) throw malformedXml(`it has ${count.roots} elements at the top`)
}

function checkSize(depth: number, { elements, attributes, asides }: Omit<typeof maxCounts, 'depth'>): void {
  const isSmall =
    depth <= maxCounts.depth &&
    elements <= maxCounts.elements &&
    attributes <= maxCounts.attributes &&
    asides <= maxCounts.asides
  if (!isSmall) throw malformedXml('it is too deep, or has too many parts')
}

export const isNamed = (element: Element, namespace: string, name: string): boolean =>
  element.namespace === namespace && element.name === name

export const childrenOf = (element: Element, namespace: string, name: string): Element[] =>
  element.children.filter((child) => isNamed(child, namespace, name))

/** An element and all its descendants. */
export function* descendantsOf(element: Element): Generator<Element> {
  yield element
  for (const child of element.children) yield* descendantsOf(child)
}

/** The text of an element without child elements. @throws SsoFailure saml_malformed */
export function textOf(element: Element): string {
  if (element.children.length > 0) throw malformedXml(`${element.name} holds more than text`)
  return element.text
}

export const malformedXml = (detail: string): SsoFailure => new SsoFailure('saml_malformed', detail)

/** For the detail of a failure. */
export const quoteForDetail = (value: string | undefined): string =>
  value === undefined ? 'nothing' : JSON.stringify(value).slice(0, 500)
