import { readdirSync, statSync } from 'node:fs'
import { dirname, extname, join, resolve } from 'node:path'
import type { Document, LineCounter, Node } from 'yaml'
import { kinds, sections, uncovered } from '../../configuration/contract.ts'
import { didYouMean } from '../../core/suggest.ts'
import { readStdin, readTextFile } from '../ask.ts'
import { usageError } from '../exit-codes.ts'

type Objects = Record<string, Record<string, unknown>[]>

/** A fault with its place, which is empty where it is in no file. */
export type FileFault = { file: string; line: number; column: number; message: string }

type Source = { file: string; document: Document; lines: LineCounter }

/** What several files say together. */
export type Configuration = {
  document: Objects
  /** Faults that are found without the service. */
  faults: FileFault[]
  /** Where a path of the request stands. */
  placeOf(path: string): Omit<FileFault, 'message'> | undefined
}

const extensions = ['.yaml', '.yml', '.json']
/** Of a folder with everything below it. */
const mostFiles = 1000

/** Reads files and folders; `-` is standard input. @throws CliError with every fault of syntax */
export async function readConfiguration(paths: readonly string[]): Promise<Configuration> {
  const yaml = await import('yaml')
  const sources: Source[] = []
  const broken: FileFault[] = []
  for (const file of paths.flatMap(filesAt)) {
    const text = file === '-' ? await readStdin('the configuration') : readTextFile(file, 'the configuration')
    const lines = new yaml.LineCounter()
    const document = yaml.parseDocument(text, { lineCounter: lines, merge: true })
    const shown = file === '-' ? '<standard input>' : file
    for (const { message, pos } of document.errors) {
      const [summary = ''] = message.split(/ at line \d+|:?\n/)
      broken.push({ file: shown, ...position(lines, pos[0]), message: summary })
    }
    sources.push({ file: shown, document: document as Document, lines })
  }
  if (broken.length > 0) throw faultsError(broken)
  return together(sources)
}

function filesAt(path: string): string[] {
  if (path === '-') return [path]
  let isFolder: boolean
  try {
    isFolder = statSync(path).isDirectory()
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : String(error)
    throw usageError(`Cannot read ${path}: ${why}`)
  }
  if (!isFolder) return [path]
  const found = readdirSync(path, { recursive: true, encoding: 'utf8' })
    .filter((name) => extensions.includes(extname(name)))
    .sort()
    .map((name) => join(path, name))
  if (found.length === 0)
    throw usageError(`There is no file in ${path} whose name ends in ${extensions.join(', ')}`)
  if (found.length > mostFiles) throw usageError(`There are more than ${mostFiles} files in ${path}`)
  return found
}

const position = (lines: LineCounter, offset: number) => {
  const { line, col } = lines.linePos(offset)
  return { line, column: col }
}

function together(sources: readonly Source[]): Configuration {
  const document: Objects = {}
  const faults: FileFault[] = []
  const places = new Map<string, { source: Source; index: number }[]>()
  for (const source of sources) {
    const fault = (path: readonly (string | number)[], message: string) =>
      faults.push({ file: source.file, ...placeIn(source, path), message })
    const whole = jsOf(source)
    if (whole === null || whole === undefined) continue
    if (!isObject(whole)) {
      fault([], 'must be an object of sections')
      continue
    }
    for (const [section, objects] of Object.entries(whole)) {
      if (!(sections as readonly string[]).includes(section)) {
        fault([section], unknownSection(section))
        continue
      }
      if (!Array.isArray(objects)) {
        fault([section], 'must be a list of objects; [] for none')
        continue
      }
      // An empty list manages the section as well.
      document[section] ??= []
      for (const [index, object] of objects.entries()) {
        if (!isObject(object)) {
          fault([section, index], 'must be an object')
          continue
        }
        const filled = fillIn(object, [section, index], source, fault)
        document[section].push(filled as Record<string, unknown>)
        places.set(section, [...(places.get(section) ?? []), { source, index }])
      }
    }
  }
  return {
    document,
    faults,
    placeOf(path) {
      const [, section = '', at = '', ...rest] = /^body\.document/.test(path) ? path.split('.').slice(1) : []
      const found = places.get(section)?.[Number(at)]
      if (!found) return undefined
      const { source, index } = found
      return { file: source.file, ...placeIn(source, [section, index, ...rest]) }
    },
  }
}

/** A bound on what aliases multiply is the library's own. */
function jsOf({ document, file }: Source): unknown {
  try {
    return document.toJS()
  } catch (error) {
    throw usageError(`Cannot read ${file}: ${(error as Error).message}`)
  }
}

function unknownSection(section: string): string {
  const known = uncovered.find(({ what }) => what === section)
  if (known) return `${section} is not covered yet: ${known.reason}`
  const near = didYouMean(section, [...sections])
  return `${section} is not a section${near === undefined ? `: ${sections.join(', ')}` : `; ${near}`}`
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === 'object' && !Array.isArray(value)

type Path = readonly (string | number)[]

const variable = /(\$+)\{(env|file):([^}]*)\}/g

/** Replaces `${env:NAME}` and `${file:PATH}`; `$${env:NAME}` stands for itself. */
function fillIn(
  value: unknown,
  path: Path,
  source: Source,
  fault: (path: Path, message: string) => void,
): unknown {
  if (Array.isArray(value)) return value.map((item, at) => fillIn(item, [...path, at], source, fault))
  if (isObject(value))
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, fillIn(item, [...path, key], source, fault)]),
    )
  if (typeof value !== 'string') return value
  return value.replace(variable, (whole, dollars: string, from: string, name: string) => {
    if (dollars.length > 1) return whole.slice(1)
    const found = from === 'env' ? process.env[name] : fileText(name, source)
    if (found !== undefined) return found
    fault(
      path,
      from === 'env' ? `the variable ${name} is not set` : `there is no file ${name} beside this one`,
    )
    return whole
  })
}

/** Of a path relative to the file that names it. */
function fileText(name: string, { file }: Source): string | undefined {
  try {
    return readTextFile(resolve(dirname(file), name), name)
  } catch {
    return undefined
  }
}

/** Whether a text of a file is replaced by something else. */
export const holdsVariable = (text: string): boolean => /(?<!\$)\$\{(?:env|file):[^}]*\}/.test(text)

/** In a file a text that looks like a variable is written so. */
export const escapeVariables = (text: string): string => text.replace(variable, (whole) => `$${whole}`)

/** The place of a value, or of the nearest thing around it that is there. */
function placeIn({ document, lines }: Source, path: Path): { line: number; column: number } {
  let node = document.contents as Node | null
  let offset = node?.range?.[0] ?? 0
  for (const step of path) {
    const within = resolved(node, document)
    const child = within && childOf(within, step)
    if (!child) break
    offset = child.offset
    node = child.node
  }
  return position(lines, offset)
}

type Collection = { items?: unknown[] }
type Pair = { key?: { value?: unknown; range?: [number, number, number] }; value?: Node | null }

function resolved(node: Node | null, document: Document): Node | null {
  const alias = node as (Node & { resolve?: (document: Document) => Node | undefined }) | null
  return alias?.resolve ? (alias.resolve(document) ?? null) : node
}

function childOf(node: Node, step: string | number): { node: Node | null; offset: number } | undefined {
  const { items } = node as unknown as Collection
  if (!Array.isArray(items)) return undefined
  const isPair = (one: unknown): one is Pair => one !== null && typeof one === 'object' && 'key' in one
  const pair = items.filter(isPair).find(({ key }) => String(key?.value) === String(step))
  if (pair) return { node: pair.value ?? null, offset: pair.key?.range?.[0] ?? 0 }
  const item = items[Number(step)] as Node | undefined
  if (!item || isPair(item)) return undefined
  return { node: item, offset: item.range?.[0] ?? 0 }
}

/** All faults at once, in the order of the files. */
export function faultsError(faults: readonly FileFault[]) {
  const ordered = faults.toSorted(
    (one, other) => one.file.localeCompare(other.file) || one.line - other.line || one.column - other.column,
  )
  const lines = ordered.map(({ file, line, column, message }) =>
    file === '' ? message : `${file}:${line}:${column}: ${message}`,
  )
  const many = lines.length === 1 ? '1 fault' : `${lines.length} faults`
  return usageError(
    [`The configuration has ${many}`, ...lines].join('\n  '),
    'svc config schema describes the form',
  )
}

/** The name of an object for a message: `sites "Main Office"`. */
export function nameAt({ document }: Configuration, path: string): string {
  const [, , section = '', at = ''] = path.split('.')
  const kind = Object.hasOwn(kinds, section) ? kinds[section as keyof typeof kinds] : undefined
  const name = kind && document[section]?.[Number(at)]?.[kind.key]
  return typeof name === 'string' ? `${section} "${name}": ` : ''
}
