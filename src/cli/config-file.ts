import { join } from 'node:path'
import { parseJson } from '../core/json.ts'
import { didYouMean } from '../core/suggest.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { configDir, readFileIfExists, writePrivateFile } from './files.ts'
import { withLock } from './lock.ts'

/** Cached identity of the signed-in user. No secrets. */
export type CachedIdentity = {
  /** null for a program. */
  email: string | null
  scope: string
  orgId: string | null
  partnerId: string | null
  /** The trust policy that a CI job signed in with. */
  workload?: { id: string; name: string }
}

export type StoreKind = 'keychain' | 'file' | 'memory'

export type Context = {
  url: string
  /** Default organization: id, slug or name. */
  org?: string
  identity?: CachedIdentity
  /** The organization of the last single sign-on. */
  sso?: { orgId: string; name: string; slug: string }
  /** Where the session of this context is stored. */
  store?: StoreKind
}

export type ConfigFile = {
  version: 1
  current?: string
  contexts: Record<string, Context>
  /** The credential store that the user agreed to. */
  store?: StoreKind
}

const configPath = (): string => join(configDir(), 'config.json')

export function readConfig(): ConfigFile {
  const text = readFileIfExists(configPath())
  if (text === undefined) return { version: 1, contexts: {} }
  const profile = parseJson(text) as ConfigFile | null | undefined
  if (profile?.version === 1 && typeof profile.contexts === 'object' && profile.contexts !== null)
    return profile
  throw new CliError(`${configPath()} is not a valid configuration`, {
    exit: exitCodes.usage,
    code: 'bad_config',
    hint: 'repair it, or move it away to start anew',
  })
}

/** Reads, changes and writes the profile under a lock between processes. */
export async function updateConfig(change: (profile: ConfigFile) => void): Promise<ConfigFile> {
  // No context can have this lock name.
  return withLock('(profile)', () => {
    const profile = readConfig()
    change(profile)
    writePrivateFile(configPath(), `${JSON.stringify(profile, null, 2)}\n`)
    return profile
  })
}

export function getContext(profile: ConfigFile, name: string): Context {
  const context = Object.hasOwn(profile.contexts, name) ? profile.contexts[name] : undefined
  if (context) return context
  const names = Object.keys(profile.contexts)
  throw usageError(`There is no context "${name}"`, didYouMean(name, names) ?? 'svc context ls')
}

/** The default name of a context: the host of its URL. */
export function contextNameFor(profile: ConfigFile, url: string): string {
  const base = new URL(url).host.replace(/[^\w.-]+/g, '-')
  let name = base
  for (let n = 2; Object.hasOwn(profile.contexts, name); n += 1) name = `${base}-${n}`
  return name
}

export function checkContextName(name: string): string {
  if (/^[\w][\w.-]{0,63}$/.test(name)) return name
  throw usageError(
    `"${name}" cannot be the name of a context`,
    'letters, digits, dot, dash and underscore, at most 64',
  )
}
