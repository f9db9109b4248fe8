import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { SetupError } from '../src/core/errors.ts'

export type Env = Readonly<Record<string, string | undefined>>

/**
 * The settings with a value. An empty setting counts as not set: containers pass variables as empty when their
 * environment lacks them.
 */
export const withoutEmpty = (env: Env): Env =>
  new Proxy(env, {
    get: (all, name: string) => (all[name]?.trim() === '' ? undefined : all[name]),
  })

/**
 * A secret: the variable itself, else the text of the file that its `_FILE` form names, else the credential of that name that
 * systemd passes (LoadCredential= of systemd.exec(5)). @throws SetupError
 */
export function readSecretVariable(env: Env, name: string): string | undefined {
  if (env[name]) return env[name]
  const given = env[`${name}_FILE`]
  const file = given || credentialOf(env, name)
  if (!file) return undefined
  // A file for a former secret may be named before there is one.
  const isFormer = name.endsWith('_PREVIOUS')
  if (isFormer && !existsSync(file)) return undefined
  const source = given ? `${name}_FILE` : `The credential ${name}`
  const secret = readText(source, file).trim()
  if (secret === '' && isFormer) return undefined
  if (secret === '') throw new SetupError(`${source} names an empty file: ${file} must contain ${name}`)
  return secret
}

/** The file of a credential, where there is one. */
function credentialOf(env: Env, name: string): string | undefined {
  const file = env.CREDENTIALS_DIRECTORY && join(env.CREDENTIALS_DIRECTORY, name)
  return file && existsSync(file) ? file : undefined
}

function readText(source: string, file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new SetupError(`${source} cannot be read: ${(error as Error).message}`)
  }
}

/** The files that settings name, and the credentials: what a running service may find changed. */
export function settingFiles(env: Env): string[] {
  const named = Object.keys(env).flatMap((name) => (name.endsWith('_FILE') && env[name]) || [])
  return [...named, ...credentials(env.CREDENTIALS_DIRECTORY)]
}

function credentials(directory: string | undefined): string[] {
  if (!directory) return []
  try {
    return readdirSync(directory).map((name) => join(directory, name))
  } catch {
    // A directory that cannot be read has no files to watch; each setting that needs one says so.
    return []
  }
}

export function readBoolean<T>(env: Env, name: string, otherwise: T): boolean | T {
  const text = env[name]
  if (!text) return otherwise
  if (text === 'true' || text === '1' || text === 'on') return true
  if (text === 'false' || text === '0' || text === 'off') return false
  throw new SetupError(`${name} must be true or false`)
}

export function readInteger(env: Env, name: string, otherwise: number, min: number, max: number): number {
  const text = env[name]
  if (!text) return otherwise
  const value = Number(text)
  if (Number.isInteger(value) && value >= min && value <= max) return value
  throw new SetupError(`${name} must be a whole number from ${min} to ${max}`)
}

/** undefined: for ever, written `never` or 0. */
export function readDays(env: Env, name: string, otherwise: number | undefined, min = 1): number | undefined {
  const text = env[name]
  if (!text) return otherwise
  if (text === 'never' || text === '0') return undefined
  const value = Number(text)
  if (Number.isInteger(value) && value >= min && value <= maxDays) return value
  throw new SetupError(`${name} must be a whole number of days from ${min} to ${maxDays}, or never`)
}

const maxDays = 36_500

/** An http(s) address without query and fragment, and without the slash at its end. */
export function readUrl(env: Env, name: string): string | undefined {
  const text = env[name]
  if (!text) return undefined
  const url = URL.parse(text)
  const plain = url && !url.search && !url.hash && !url.username && !url.password
  if (plain && (url.protocol === 'https:' || url.protocol === 'http:')) return url.href.replace(/\/+$/, '')
  throw new SetupError(`${name} must be an address such as https://svc.example.com`)
}
