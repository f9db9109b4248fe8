import { join } from 'node:path'
import { didYouMean } from '../core/suggest.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { configDir, readFileIfExists, writePrivateFile } from './files.ts'
import { withLock } from './lock.ts'

/** Who signed in, as far as it is worth remembering between calls. No secrets. */
export type CachedIdentity = {
  /** null: it is no person. */
  email: string | null
  scope: string
  orgId: string | null
  partnerId: string | null
  /** The trust policy that a CI job signed in by. */
  workload?: { id: string; name: string }
}

export type StoreKind = 'keychain' | 'file' | 'memory'

export type Context = {
  url: string
  /** Default organization: id, slug or name. */
  org?: string
  identity?: CachedIdentity
  /** The organization whose single sign-on was used last. */
  sso?: { orgId: string; name: string; slug: string }
  /** Where this context's session is kept. */
  store?: StoreKind
}

export type ConfigFile = {
  version: 1
  current?: string
  contexts: Record<string, Context>
  /** The credential store that was agreed to. */
  store?: StoreKind
}

const configPath = (): string => join(configDir(), 'config.json')

export function readConfig(): ConfigFile {
  const text = readFileIfExists(configPath())
  if (text === undefined) return { version: 1, contexts: {} }
  try {
    const profile = JSON.parse(text) as ConfigFile
    if (profile.version === 1 && typeof profile.contexts === 'object' && profile.contexts !== null)
      return profile
  } catch {
    // said below
  }
  throw new CliError(`${configPath()} cannot be understood`, {
    exit: exitCodes.usage,
    code: 'bad_config',
    hint: 'repair it, or move it away to start afresh',
  })
}

/** Reads, changes and writes the profile, one process at a time. */
export async function updateConfig(change: (profile: ConfigFile) => void): Promise<ConfigFile> {
  // No context can have this name.
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

/** A name for a context that nobody named: the host of its URL. */
export function contextNameFor(profile: ConfigFile, url: string): string {
  const base = new URL(url).host.replace(/[^\w.-]+/g, '-')
  let name = base
  for (let n = 2; Object.hasOwn(profile.contexts, name); n += 1) name = `${base}-${n}`
  return name
}

export function checkContextName(name: string): string {
  if (/^[\w][\w.-]{0,63}$/.test(name)) return name
  throw usageError(`"${name}" cannot name a context`, 'letters, digits, dot, dash and underscore, at most 64')
}
