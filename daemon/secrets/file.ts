import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { SetupError } from '../../src/core/errors.ts'

/* `secrets.json` in the data directory: generated secrets, and what `svc secrets` changes. */

export type SecretEntry = 'jwt' | 'encryption' | 'enrollmentPepper' | 'recoveryPepper' | 'auditSigning'

/** The entry of the former secret, which still opens what it made. Earlier releases ignore it. */
export const previousEntry = {
  jwt: 'jwtPrevious',
  encryption: 'encryptionPrevious',
  enrollmentPepper: 'enrollmentPepperPrevious',
  recoveryPepper: 'recoveryPepperPrevious',
  auditSigning: 'auditSigningPrevious',
} as const satisfies Record<SecretEntry, string>

export type StoredSecrets = { [K in SecretEntry | (typeof previousEntry)[SecretEntry]]?: string }

export const secretsFile = (dataDir: string): string => join(dataDir, 'secrets.json')

const unreadable = (file: string, reason: string): SetupError =>
  new SetupError(
    `${file} cannot be read: ${reason}. Restore it from a backup: stored secrets cannot be decrypted without it.`,
  )

/** undefined when there is no file. @throws SetupError when it cannot be read or is damaged */
export function readSecretsFile(file: string): StoredSecrets | undefined {
  if (!existsSync(file)) return undefined
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    throw unreadable(file, (error as Error).message)
  }
  return parseSecrets(file, text)
}

/** `file`: how a refusal names it. @throws SetupError when it is damaged */
export function parseSecrets(file: string, text: string): StoredSecrets {
  let stored: unknown
  try {
    stored = JSON.parse(text)
  } catch {
    // A syntax error quotes the text, and with it the secrets.
    throw unreadable(file, 'it is damaged')
  }
  if (typeof stored !== 'object' || stored === null || Array.isArray(stored)) {
    throw unreadable(file, 'it is damaged')
  }
  const wrong = Object.entries(stored).find(([, secret]) => typeof secret !== 'string' || secret === '')
  if (wrong) throw unreadable(file, `its entry ${JSON.stringify(wrong[0])} is not a secret`)
  return stored as StoredSecrets
}

/** Replaces the file at once, also after a crash. False when a new file was expected and another process created it first. */
export function writeSecretsFile(
  file: string,
  secrets: StoredSecrets,
  { isNew }: { isNew: boolean },
): boolean {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  const draft = `${file}.${process.pid}`
  writeFileSync(draft, `${JSON.stringify(secrets, null, 2)}\n`, { mode: 0o600, flush: true })
  try {
    if (isNew) linkSync(draft, file)
    else renameSync(draft, file)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  } finally {
    rmSync(draft, { force: true })
  }
}
