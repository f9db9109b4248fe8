import {
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { SetupError } from '../../src/core/errors.ts'
import { isJsonObject, parseJson } from '../../src/core/json.ts'
import { makeFolder } from '../../src/core/make-folder.ts'
import type { SecretEntry } from '../../src/core/secret-names.ts'
import { syncDirectory } from '../../src/core/sync-directory.ts'

/* `secrets.json` in the data directory: generated secrets, and what `svc secrets` changes. */

/** The entry of the former secret, which still opens what it made. Earlier releases ignore it. */
export const previousEntry = {
  jwt: 'jwtPrevious',
  encryption: 'encryptionPrevious',
  enrollmentPepper: 'enrollmentPepperPrevious',
  recoveryPepper: 'recoveryPepperPrevious',
  auditSigning: 'auditSigningPrevious',
  metricsToken: 'metricsTokenPrevious',
} as const satisfies Record<SecretEntry, string>

export type StoredSecrets = { [K in SecretEntry | (typeof previousEntry)[SecretEntry]]?: string }

export const secretsFileName = 'secrets.json'

export const secretsFile = (dataDir: string): string => join(dataDir, secretsFileName)

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
  // A syntax error would quote the text, and with it the secrets.
  const stored = parseJson(text)
  if (!isJsonObject(stored)) throw unreadable(file, 'it is damaged')
  const wrong = Object.entries(stored).find(([, secret]) => typeof secret !== 'string' || secret === '')
  if (wrong) throw unreadable(file, `its entry ${JSON.stringify(wrong[0])} is not a secret`)
  return stored as StoredSecrets
}

/**
 * Replaces the file at once, also after a crash. False when a new file was expected and another process created it first.
 * @throws SetupError when it cannot be written
 */
export function writeSecretsFile(
  file: string,
  secrets: StoredSecrets,
  { isNew }: { isNew: boolean },
): boolean {
  const draft = `${file}.${process.pid}`
  try {
    makeFolder(dirname(file))
    writeFileSync(draft, `${JSON.stringify(secrets, null, 2)}\n`, { mode: 0o600, flush: true })
    if (isNew) linkSync(draft, file)
    else {
      keepOwner(file, draft)
      renameSync(draft, file)
    }
    syncDirectory(dirname(file))
    return true
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EEXIST' && isNew) return false
    throw new SetupError(`Cannot write ${file}: ${code ?? message}`, { cause: error })
  } finally {
    rmSync(draft, { force: true })
  }
}

/** What root writes has to stay readable for the user of the service. */
function keepOwner(file: string, draft: string): void {
  const { uid, gid } = statSync(file)
  if (process.getuid?.() === 0) chownSync(draft, uid, gid)
}

/**
 * Runs `work` while no other command changes the file. A lock that a killed command left is taken over after ten seconds.
 * @throws SetupError while another one does, or when the file is a link, which a write would replace
 */
export async function lockSecretsFile<T>(file: string, work: () => T | Promise<T>): Promise<T> {
  if (lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink()) {
    throw new SetupError(`${file} is a link: change the secret where it comes from`)
  }
  // Loaded here alone: it handles signals, with which it would end a service that reaches a limit of file sizes (SIGXFSZ).
  const { lock } = await import('proper-lockfile')
  let unlock: () => Promise<void>
  try {
    unlock = await lock(file, { stale: 10_000, realpath: false })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') {
      throw new SetupError(`Cannot lock ${file}: ${(error as NodeJS.ErrnoException).code}`, { cause: error })
    }
    throw new SetupError(`Another command is changing ${file}: try again in a moment`)
  }
  try {
    return await work()
  } finally {
    await unlock()
  }
}
