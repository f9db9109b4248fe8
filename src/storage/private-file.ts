import { chmodSync, closeSync, openSync } from 'node:fs'

/**
 * Makes a file that SQLite then opens, which would make it readable for others. One that is there is not opened here: closing it
 * would release the locks that this process has on it (fcntl(2)).
 */
export function makePrivate(file: string): void {
  try {
    closeSync(openSync(file, 'wx', 0o600))
  } catch (error) {
    // Why it cannot be made SQLite says next.
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') restrict(file)
  }
}

/** One of a former release. */
function restrict(file: string): void {
  try {
    chmodSync(file, 0o600)
  } catch {
    // It belongs to somebody else, and whether it can be locked shows next.
  }
}
