import { existsSync, mkdirSync } from 'node:fs'
import { dirname, resolve } from 'node:path'

/**
 * Makes a folder, and those above it that are missing. Node's own `recursive` never returns where the system refuses a folder
 * as if the one above it were missing, as /proc and some network file systems do.
 * @throws the error of mkdir(2), such as EACCES, or EEXIST where a file has the name
 */
export function makeFolder(path: string, mode = 0o700): void {
  const missing: string[] = []
  for (let folder = resolve(path); !existsSync(folder); folder = dirname(folder)) missing.unshift(folder)
  for (const folder of missing) {
    try {
      mkdirSync(folder, { mode })
    } catch (error) {
      // Another process may have made it since.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !existsSync(folder)) throw error
    }
  }
  // One that is there is no error, but a file of that name is.
  mkdirSync(path, { recursive: true, mode })
}
