import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseJson } from '../core/json.ts'
import type { StoreKind } from './config-file.ts'
import { configDir, readFileIfExists, writePrivateFile } from './files.ts'

/** The tokens of a sign-in, with the only address they may be sent to. */
export type StoredSession = {
  url: string
  accessToken: string
  refreshToken?: string
  /** Milliseconds since 1970. */
  expiresAt: number
  /** The command that signs in again; set where the session cannot be renewed. */
  again?: string
}

export type CredentialLocation = {
  kind: StoreKind
  context: string
  /** A person can unlock the keychain, so it may take longer. */
  interactive?: boolean
}

const sessionFile = (context: string): string => join(configDir(), 'sessions', `${context}.json`)

/** Contexts of other configuration directories have separate entries. */
const accountOf = (context: string): string =>
  process.env.SVC_CONFIG_DIR
    ? `${context} (${process.getBuiltinModule('node:crypto').hash('sha256', process.env.SVC_CONFIG_DIR, 'hex').slice(0, 12)})`
    : context

/** The time limit is 2 seconds unless a person can unlock it. */
async function useKeychain(
  place: CredentialLocation,
  op: 'get' | 'set' | 'delete',
  secret?: string,
): Promise<string | null> {
  const { keychain } = await import('./keychain.ts')
  const request = { op, account: accountOf(place.context), ...(secret !== undefined && { secret }) }
  return place.interactive ? keychain(request, 30_000) : keychain(request)
}

export async function readSession(place: CredentialLocation): Promise<StoredSession | undefined> {
  const text =
    place.kind === 'keychain'
      ? await useKeychain(place, 'get')
      : place.kind === 'file'
        ? readFileIfExists(sessionFile(place.context))
        : undefined
  if (!text) return undefined
  const session = parseJson(text) as Partial<StoredSession> | null | undefined
  const isWhole = typeof session?.accessToken === 'string' && typeof session.url === 'string'
  return isWhole ? (session as StoredSession) : undefined
}

/** Writes the session and reads it back. */
export async function writeSession(place: CredentialLocation, session: StoredSession): Promise<void> {
  const text = JSON.stringify(session)
  if (place.kind === 'keychain') {
    await useKeychain(place, 'set', text)
  } else if (place.kind === 'file') {
    writePrivateFile(sessionFile(place.context), text)
    if (readFileIfExists(sessionFile(place.context)) !== text)
      throw new Error('the session file does not contain what was written')
  }
}

/** Removes the session and verifies that it is gone. */
export async function removeSession(place: CredentialLocation): Promise<void> {
  if (place.kind === 'keychain') {
    await useKeychain(place, 'delete')
  } else if (place.kind === 'file') {
    rmSync(sessionFile(place.context), { force: true })
    if (readFileIfExists(sessionFile(place.context)) !== undefined)
      throw new Error('the session file could not be removed')
  }
}

/** Describes where a session is stored. */
export function describeLocation(place: CredentialLocation): string {
  if (place.kind === 'file') return `file ${sessionFile(place.context)} (mode 0600, unencrypted)`
  if (place.kind === 'memory') return 'nowhere: it was not stored'
  const name =
    { darwin: 'Keychain', win32: 'Credential Manager' }[process.platform as string] ?? 'Secret Service'
  return `${name} of this machine, entry "svc" / "${accountOf(place.context)}"`
}

/** Whether the keychain works, or the reason why not. */
export async function probeKeychain(): Promise<{ works: true } | { works: false; reason: string }> {
  const { keychain } = await import('./keychain.ts')
  try {
    await keychain({ op: 'get', account: 'probe' })
    return { works: true }
  } catch (error) {
    return { works: false, reason: (error as Error).message }
  }
}
