import { closeSync, constants, fstatSync, openSync, readSync, realpathSync } from 'node:fs'
import { dirname, isAbsolute, relative, resolve, sep } from 'node:path'
import { configuration } from '../../configuration/contract.ts'
import { isJsonObject } from '../../core/json.ts'
import { escapeToOneLine } from '../../core/terminal.ts'
import { decodeUtf8 } from '../utf8.ts'

/** A variable in a text of a file. */
export type Variable = {
  /** As it is written: `${env:NAME}`. */
  name: string
  value: string
}

/** Where a value stands, from the sections on. */
export type Path = readonly (string | number)[]

/** What becomes of the texts of one file. */
type Filling = {
  /** The file, which paths of its variables are relative to. */
  file: string
  source: VariableSource
  fault(path: Path, message: string): void
  /** Whether what a variable that cannot be read is part of may be left out. */
  omits?(path: Path, variable: string): boolean
  /** Told of each text that a variable was part of. */
  filled?(path: Path, text: string, variables: Variable[]): void
}

const variable = /(\$+)\{(env|file):([^}]*)\}/g

/** Whether a text of a file is replaced by something else. */
const holdsVariable = (text: string): boolean => /(?<!\$)\$\{(?:env|file):[^}]*\}/.test(text)

/** Whether there is a variable anywhere in a value. */
export function hasVariable(value: unknown): boolean {
  if (typeof value === 'string') return holdsVariable(value)
  return value !== null && typeof value === 'object' && Object.values(value).some(hasVariable)
}

/** What the service has is no variable of a file: `$${env:NAME}` stands for itself. */
export function escapeVariables<T>(value: T): T
export function escapeVariables(value: unknown): unknown {
  if (typeof value === 'string') return value.replace(variable, (whole) => `$${whole}`)
  if (Array.isArray(value)) return value.map((item) => escapeVariables(item))
  if (!isJsonObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, escapeVariables(item)]))
}

/** Replaces `${env:NAME}` and `${file:PATH}` in every text of a value. */
export function substituteVariables(value: unknown, path: Path, filling: Filling): unknown {
  if (Array.isArray(value)) return value.map((item, at) => substituteVariables(item, [...path, at], filling))
  if (isJsonObject(value))
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, substituteVariables(item, [...path, key], filling)]),
    )
  if (typeof value !== 'string') return value
  const variables: Variable[] = []
  const text = value.replace(variable, (whole, dollars: string, from: 'env' | 'file', name: string) => {
    if (dollars.length > 1) return whole.slice(1)
    const read = filling.source.read(from, name, filling.file)
    if ('fault' in read) {
      const isLeftOut = read.isAbsent === true && filling.omits?.(path, whole) === true
      if (!isLeftOut) filling.fault(path, read.fault)
      return whole
    }
    variables.push({ name: whole, value: read.text })
    return read.text
  })
  if (variables.length > 0) filling.filled?.(path, text, variables)
  return text
}

/** `isAbsent`: there is none, and there may be one elsewhere. */
type Read = { text: string } | { fault: string; isAbsent?: boolean }

/** Names of the environment that any file may read. */
const allowedPrefix = 'SVC_CONFIG_'
const maxFileBytes = 1024 * 1024
/** More cannot be sent. A small file could name a large one any number of times. */
const maxTotalBytes = configuration.plan.maxBody ?? 4 * maxFileBytes

/**
 * Reads what variables stand for. Whoever may change a file, such as with a pull request, must not read the secrets of the
 * machine that plans it: its environment is closed but for names that are meant for files, and its disk but for the folder of
 * the file.
 */
export class VariableSource {
  readonly #allowed: ReadonlySet<string>
  #left = maxTotalBytes

  /** `allowed`: names of the environment besides those that begin with SVC_CONFIG_. */
  constructor(allowed: readonly string[]) {
    this.#allowed = new Set(allowed)
  }

  read(from: 'env' | 'file', name: string, file: string): Read {
    const read = from === 'env' ? this.#variable(name) : fileBeside(file, name)
    if ('fault' in read) return read
    this.#left -= Buffer.byteLength(read.text)
    if (this.#left >= 0) return read
    return { fault: `the variables of the files are more than ${maxTotalBytes} bytes together: use fewer` }
  }

  #variable(name: string): Read {
    const shown = escapeToOneLine(name)
    if (!name.startsWith(allowedPrefix) && !this.#allowed.has(name))
      return {
        fault: `the variable ${shown} is closed to files: call it ${allowedPrefix}${shown}, or allow it with --env ${shown}`,
      }
    const text = process.env[name]
    if (text === undefined) return { fault: `the variable ${shown} is not set`, isAbsent: true }
    // What the environment is read with has put it in place of other bytes.
    return text.includes('\ufffd') ? { fault: `the variable ${shown} is not UTF-8` } : { text }
  }
}

/** Of a path relative to the folder of the file that names it, and within that folder, links included. */
function fileBeside(file: string, name: string): Read {
  const folder = dirname(file)
  const shown = escapeToOneLine(name)
  const outside = { fault: `${shown} is not in the folder of this file: put it beside this file or below` }
  if (isAbsolute(name) || !isWithin(resolve(folder), resolve(folder, name))) return outside
  try {
    const [real, path] = [realpathSync(folder), realpathSync(resolve(folder, name))]
    if (!isWithin(real, path)) return outside
    const bytes = readBounded(path, { max: maxFileBytes, isRegular: true })
    if (bytes === undefined)
      return { fault: `${shown} must be a regular file of at most ${maxFileBytes} bytes` }
    const read = decodeUtf8(bytes)
    if ('text' in read) return read
    const { line, column } = read.invalidAt
    return { fault: `${shown} is not UTF-8 (line ${line}, column ${column}), and a field takes text` }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return code === 'ENOENT' || code === 'ENOTDIR'
      ? { fault: `there is no file ${shown} beside this one`, isAbsent: true }
      : { fault: `cannot read ${shown}: ${code ?? (error as Error).message}` }
  }
}

export function isWithin(folder: string, path: string): boolean {
  const way = relative(folder, path)
  return way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way)
}

/** undefined: it is longer, or not regular where it has to be. Neither a pipe nor an endless device holds that up. */
export function readBounded(path: string, { max, isRegular }: { max: number; isRegular: boolean }) {
  const file = openSync(path, constants.O_RDONLY | (isRegular ? (constants.O_NONBLOCK ?? 0) : 0))
  try {
    return isRegular && !fstatSync(file).isFile() ? undefined : readAtMost(file, max)
  } finally {
    closeSync(file)
  }
}

/** undefined: it is longer. */
function readAtMost(file: number, max: number): Buffer | undefined {
  const chunks: Buffer[] = []
  for (let length = 0; length <= max; ) {
    const chunk = Buffer.alloc(64 * 1024)
    const read = readSync(file, chunk)
    if (read === 0) return Buffer.concat(chunks)
    chunks.push(chunk.subarray(0, read))
    length += read
  }
  return undefined
}
