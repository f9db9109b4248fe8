import { join } from 'node:path'
import { didYouMean } from '../core/suggest.ts'
import { CliError, exits, usage } from './exit.ts'
import { configDir, readIfThere, writePrivately } from './files.ts'
import { alone } from './lock.ts'

/** Who signed in, as far as it is worth remembering between calls. No secrets. */
export type KnownIdentity = {
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
  identity?: KnownIdentity
  /** The organization whose single sign-on was used last. */
  sso?: { orgId: string; name: string; slug: string }
  /** Where this context's session is kept. */
  store?: StoreKind
}

export type Profile = {
  version: 1
  current?: string
  contexts: Record<string, Context>
  /** The credential store that was agreed to. */
  store?: StoreKind
}

const profilePath = (): string => join(configDir(), 'config.json')

export function readProfile(): Profile {
  const text = readIfThere(profilePath())
  if (text === undefined) return { version: 1, contexts: {} }
  try {
    const profile = JSON.parse(text) as Profile
    if (profile.version === 1 && typeof profile.contexts === 'object' && profile.contexts !== null)
      return profile
  } catch {
    // said below
  }
  throw new CliError(`${profilePath()} cannot be understood`, {
    exit: exits.usage,
    code: 'bad_config',
    hint: 'repair it, or move it away to start afresh',
  })
}

/** Reads, changes and writes the profile, one process at a time. */
export async function changeProfile(change: (profile: Profile) => void): Promise<Profile> {
  // No context can have this name.
  return alone('(profile)', () => {
    const profile = readProfile()
    change(profile)
    writePrivately(profilePath(), `${JSON.stringify(profile, null, 2)}\n`)
    return profile
  })
}

export function contextNamed(profile: Profile, name: string): Context {
  const context = Object.hasOwn(profile.contexts, name) ? profile.contexts[name] : undefined
  if (context) return context
  const names = Object.keys(profile.contexts)
  throw usage(`There is no context "${name}"`, didYouMean(name, names) ?? 'svc context ls')
}

/** A name for a context that nobody named: the host of its URL. */
export function nameFor(profile: Profile, url: string): string {
  const base = new URL(url).host.replace(/[^\w.-]+/g, '-')
  let name = base
  for (let n = 2; Object.hasOwn(profile.contexts, name); n += 1) name = `${base}-${n}`
  return name
}

export function checkContextName(name: string): string {
  if (/^[\w][\w.-]{0,63}$/.test(name)) return name
  throw usage(`"${name}" cannot name a context`, 'letters, digits, dot, dash and underscore, at most 64')
}
