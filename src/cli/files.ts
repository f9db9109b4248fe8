import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { makeFolder } from '../core/make-folder.ts'
import { CliError, usageError } from './exit-codes.ts'

/** Directory of contexts, sessions and locks. */
export function configDir(env: NodeJS.ProcessEnv = process.env): string {
  if (env.SVC_CONFIG_DIR) return env.SVC_CONFIG_DIR
  if (env.XDG_CONFIG_HOME) return join(env.XDG_CONFIG_HOME, 'svc')
  if (process.platform === 'win32' && env.APPDATA) return join(env.APPDATA, 'svc')
  return join(homedir(), '.config', 'svc')
}

/** Directory of what can be made again, with the code that `bin/svc.js` has compiled. */
export function cacheDir(env: NodeJS.ProcessEnv = process.env): string {
  const base =
    env.XDG_CACHE_HOME || (process.platform === 'win32' && env.LOCALAPPDATA) || join(homedir(), '.cache')
  return join(base, 'svc')
}

export function readFileIfExists(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new CliError(`Cannot read ${path}: ${(error as Error).message}`, { cause: error })
  }
}

/** The refusal of a file that would be replaced. */
export const fileExists = (path: string, hint?: string): CliError =>
  usageError(`${path} exists and is not overwritten`, hint)

/** What a file of `cacheDir` holds; undefined where there is none, or none that can be read. */
export function readCached<T>(path: string): T | undefined {
  try {
    return JSON.parse(readFileIfExists(path) ?? '') as T
  } catch {
    // A cache that is damaged or cannot be read is made anew.
    return undefined
  }
}

/** Replaces a file atomically, readable by its owner only. A reader sees the old or the new text, never a part. */
export function writePrivateFile(path: string, text: string): void {
  const draft = `${path}.${process.pid}.new`
  try {
    makeFolder(dirname(path))
    const file = openSync(draft, 'w', 0o600)
    try {
      chmodSync(draft, 0o600)
      writeSync(file, text)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    renameSync(draft, path)
  } catch (error) {
    rmSync(draft, { force: true })
    throw new CliError(`Cannot write ${path}: ${(error as Error).message}`, { cause: error })
  }
}

/**
 * For a file of the command line that `writePrivateFile` replaces at the end: what the work found would be lost with it.
 * @throws usage when it cannot be written
 */
export function checkReplaceable(path: string): void {
  try {
    if (existsSync(path)) accessSync(path, constants.W_OK)
    accessSync(`${dirname(path)}/.`, constants.W_OK)
  } catch (error) {
    // A folder that is missing is made.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw usageError(`Cannot write ${path}: ${(error as Error).message.replace(/, access .*$/, '')}`)
  }
}

/** Refuses a secret file that others can read. On Windows the file mode says nothing about that. */
export function checkPrivateFile(path: string, flag: string): void {
  const mode = modeOf(path, flag)
  if (process.platform === 'win32' || (mode & 0o077) === 0) return
  const shown = (mode & 0o777).toString(8).padStart(4, '0')
  throw usageError(`${path} can be read by others (mode ${shown})`, `chmod 600 ${path}`)
}

function modeOf(path: string, flag: string): number {
  try {
    return statSync(path).mode
  } catch (error) {
    throw usageError(
      `Cannot read ${flag} from ${path}: ${(error as NodeJS.ErrnoException).code ?? 'not a file'}`,
    )
  }
}
