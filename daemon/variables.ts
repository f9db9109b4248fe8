import { readFileSync } from 'node:fs'
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

/** The variable itself, or the text of the file that its `_FILE` form names. */
export function readSecret(env: Env, name: string): string | undefined {
  if (env[name]) return env[name]
  const file = env[`${name}_FILE`]
  if (!file) return undefined
  const secret = readText(name, file).trim()
  if (secret === '') throw new SetupError(`${name}_FILE names an empty file: ${file} must contain ${name}`)
  return secret
}

function readText(name: string, file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new SetupError(`${name}_FILE cannot be read: ${(error as Error).message}`)
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

/** An http(s) address without query and fragment, and without the slash at its end. */
export function readUrl(env: Env, name: string): string | undefined {
  const text = env[name]
  if (!text) return undefined
  const url = URL.parse(text)
  const plain = url && !url.search && !url.hash && !url.username && !url.password
  if (plain && (url.protocol === 'https:' || url.protocol === 'http:')) return url.href.replace(/\/+$/, '')
  throw new SetupError(`${name} must be an address such as https://svc.example.com`)
}
