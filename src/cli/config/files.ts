import { readdirSync, realpathSync, statSync } from 'node:fs'
import { extname, join } from 'node:path'
import { type Guard, kinds, type Section, sections, uncoveredBy } from '../../configuration/contract.ts'
import { isJsonObject } from '../../core/json.ts'
import { didYouMean } from '../../core/suggest.ts'
import { readBytes, readStdinBytes } from '../ask.ts'
import { usageError } from '../exit-codes.ts'
import { decodeUtf8 } from '../utf8.ts'
import type { FileFault, Source } from './source.ts'
import type { SubstitutedText } from './variable-masking.ts'
import { hasVariable, isWithin, readBounded, substituteVariables, VariableSource } from './variables.ts'

type Objects = Record<string, Record<string, unknown>[]>

/** A field that is left out, with the variables that could not be read. */
export type OmittedField = { section: Section; object: number; field: string; variables: string[] }

/** What several files say together. */
export type Configuration = {
  document: Objects
  /** Faults that are found without the service. */
  faults: FileFault[]
  /** The texts that variables were part of. */
  substituted: SubstitutedText[]
  /** Fields that the document goes without, as their secrets are not at hand. */
  omitted: OmittedField[]
  /** Where a path of the request stands. */
  placeOf(path: string): Omit<FileFault, 'message'> | undefined
}

const extensions = ['.yaml', '.yml', '.json']
/** Of a folder with everything below it. */
const maxFiles = 1000

/**
 * Reads files and folders; `-` is standard input. `allowed`: names of the environment that they may read besides their own;
 * `withoutSecrets`: fields for secrets whose variables there are not are left out.
 * @throws CliError with every file that cannot be read, and every fault of syntax
 */
export async function readConfiguration(
  paths: readonly string[],
  { env: allowed = [], 'without-secrets': withoutSecrets = false }: ReadFlags,
): Promise<Configuration> {
  const { Source } = await import('./source.ts')
  const sources: Source[] = []
  const broken: FileFault[] = []
  for (const found of paths.flatMap(filesAt)) {
    const read = 'fault' in found ? found : await textOf(found)
    if ('fault' in read) {
      broken.push({ file: '', line: 0, column: 0, ...read.place, message: read.fault })
      continue
    }
    const source = new Source(read.file, read.text)
    broken.push(...source.faults())
    sources.push(source)
  }
  if (broken.length > 0) throw faultsError(broken)
  return mergeSources(sources, new VariableSource(allowed), withoutSecrets)
}

export type ReadFlags = { env?: readonly string[] | undefined; 'without-secrets'?: boolean | undefined }

/** More than the service takes, with room for comments. */
const maxFileBytes = 16 * 1024 * 1024

type Found = { path: string; folder?: string }
type Unread = { fault: string; place?: Omit<FileFault, 'message'> }

/**
 * A file that was found in a folder must be in it, and regular: whoever may change a folder must not have other files read
 * with a link. One that is named may be a pipe.
 */
async function textOf({ path, folder }: Found): Promise<{ file: string; text: string } | Unread> {
  if (path === '-') return configurationText('<standard input>', await readStdinBytes('the configuration'))
  try {
    if (folder !== undefined && !isWithin(realpathSync(folder), realpathSync(path)))
      return { fault: `${path} is a link out of ${folder}: name the file itself, or delete the link` }
    const bytes = readBounded(path, { max: maxFileBytes, isRegular: folder !== undefined })
    if (bytes !== undefined) return configurationText(path, bytes)
    return { fault: `${path} must be a regular file of at most ${maxFileBytes} bytes` }
  } catch (error) {
    return {
      fault: `Cannot read ${path}: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`,
    }
  }
}

function configurationText(file: string, bytes: Uint8Array): { file: string; text: string } | Unread {
  const read = decodeUtf8(bytes)
  if ('text' in read) return { file, text: read.text }
  return { fault: 'this is not UTF-8: save the file as UTF-8', place: { file, ...read.invalidAt } }
}

/** The file that an export is merged into. @throws CliError */
export function readMergedFile(path: string): { file: string; text: string } {
  const read = configurationText(path, readBytes(path, 'the file'))
  if ('text' in read) return read
  throw faultsError([{ ...read.place!, message: read.fault }])
}

function filesAt(path: string): (Found | Unread)[] {
  if (path === '-') return [{ path }]
  let isFolder: boolean
  try {
    isFolder = statSync(path).isDirectory()
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : String(error)
    return [{ fault: `Cannot read ${path}: ${why}` }]
  }
  if (!isFolder) return [{ path }]
  const found = readdirSync(path, { recursive: true, encoding: 'utf8' })
    .filter((name) => extensions.includes(extname(name)))
    .sort()
    .map((name) => ({ path: join(path, name), folder: path }))
  if (found.length === 0)
    return [{ fault: `There is no file in ${path} whose name ends in ${extensions.join(', ')}` }]
  return found.length > maxFiles ? [{ fault: `There are more than ${maxFiles} files in ${path}` }] : found
}

function mergeSources(
  sources: readonly Source[],
  variables: VariableSource,
  withoutSecrets: boolean,
): Configuration {
  const document: Objects = {}
  const faults: FileFault[] = []
  const substituted: SubstitutedText[] = []
  const omitted: OmittedField[] = []
  const places = new Map<string, { source: Source; index: number }[]>()
  for (const source of sources) {
    const fault = (path: readonly (string | number)[], message: string) =>
      faults.push({ file: source.file, ...source.placeOf(path), message })
    const whole = source.json(source.document.contents)
    if (whole === null) continue
    if (!isJsonObject(whole)) {
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
      const placesOf = places.get(section) ?? []
      places.set(section, placesOf)
      for (const [index, object] of objects.entries()) {
        if (!isJsonObject(object)) {
          fault([section, index], 'must be an object')
          continue
        }
        const sent = document[section].length
        for (const field of secretsInClear(section as Section, object))
          fault(
            [section, index, field],
            `holds a secret in clear: write \${env:NAME} or \${file:PATH} in its place`,
          )
        const unread = new Map<string, Set<string>>()
        const filled = substituteVariables(object, [section, index], {
          file: source.file,
          source: variables,
          fault,
          omits: ([, , field], variable) => {
            const name = String(field)
            if (!withoutSecrets || !isGuarded(section as Section, name)) return false
            unread.set(name, (unread.get(name) ?? new Set()).add(variable))
            return true
          },
          filled: ([, , ...field], text, names) =>
            substituted.push({ path: [section, sent, ...field], text, variables: names }),
        })
        for (const [field, names] of unread)
          omitted.push({ section: section as Section, object: sent, field, variables: [...names] })
        const whole = Object.entries(filled as Record<string, unknown>)
        document[section].push(Object.fromEntries(whole.filter(([field]) => !unread.has(field))))
        placesOf.push({ source, index })
      }
    }
  }
  return {
    document,
    faults,
    substituted,
    omitted,
    placeOf(path) {
      const [, section = '', at = '', ...rest] = /^body\.document/.test(path) ? path.split('.').slice(1) : []
      const found = places.get(section)?.[Number(at)]
      if (!found) return undefined
      const { source, index } = found
      return { file: source.file, ...source.placeOf([section, index, ...rest]) }
    },
  }
}

/** Fields with a secret that no variable is part of: files are read by many, and so is their history. */
function secretsInClear(section: Section, object: Record<string, unknown>): string[] {
  const isClear = (value: unknown, guard: Guard): boolean => {
    let found = false
    guard(value, (secret) => {
      if (!hasVariable(secret)) found = true
      return secret
    })
    return found
  }
  return kinds[section].fields
    .filter(({ name, guard }) => guard && isClear(object[name], guard))
    .map(({ name }) => name)
}

const isGuarded = (section: Section, field: string): boolean =>
  kinds[section].fields.some(({ name, guard }) => name === field && guard !== undefined)

function unknownSection(section: string): string {
  const known = uncoveredBy(sections).find(({ what }) => what === section)
  if (known) return `${section} is not covered: ${known.reason}`
  const near = didYouMean(section, [...sections])
  return `${section} is not a section${near === undefined ? `: ${sections.join(', ')}` : `; ${near}`}`
}

/** All faults at once, in the order of the files. */
export function faultsError(faults: readonly FileFault[], isOfForm = true) {
  const ordered = faults.toSorted(
    (one, other) => one.file.localeCompare(other.file) || one.line - other.line || one.column - other.column,
  )
  const lines = ordered.map(({ file, line, column, message }) =>
    file === '' ? message : `${file}:${line}:${column}: ${message}`,
  )
  const many = lines.length === 1 ? '1 fault' : `${lines.length} faults`
  return usageError(
    [`The configuration has ${many}`, ...lines].join('\n  '),
    isOfForm ? 'svc config schema describes the form' : undefined,
  )
}

/** The name of an object for a message: `sites "Main Office"`. */
export function nameAt({ document }: Configuration, path: string): string {
  const [, , section = '', at = ''] = path.split('.')
  const kind = Object.hasOwn(kinds, section) ? kinds[section as keyof typeof kinds] : undefined
  const name = kind && document[section]?.[Number(at)]?.[kind.key]
  return typeof name === 'string' ? `${section} "${name}": ` : ''
}
