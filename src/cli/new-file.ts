import { closeSync, existsSync, fsyncSync, linkSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { CliError, fileError, usageError } from './exit-codes.ts'
import { fileExists } from './files.ts'

/** A file that is being written: it appears under its name only when it is complete. */
export type NewFile = {
  write(chunk: string | Uint8Array): void
  /** Gives the file its name. */
  keep(): void
  /** Removes what was not kept. */
  end(): void
}

/**
 * A new private file, written whole or not at all: to a draft beside it, which is then given its name. It replaces
 * nothing. @throws usage when it exists or cannot be created
 */
export function openNewFile(path: string): NewFile {
  const draft = `${path}.${process.pid}.part`
  const forget = () => rmSync(draft, { force: true })
  if (existsSync(path)) throw fileExists(path)
  const file = attempt(path, () => openSync(draft, 'wx', 0o600), usageError)
  // Ctrl-C ends the process immediately.
  process.once('exit', forget)
  return {
    write: (chunk) =>
      attempt(path, () => {
        const bytes = Buffer.from(chunk)
        for (let from = 0; from < bytes.length; ) from += writeSync(file, bytes, from)
      }),
    keep: () =>
      attempt(path, () => {
        fsyncSync(file)
        try {
          // Unlike a renaming this never replaces a file that came in the meantime.
          linkSync(draft, path)
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw fileExists(path)
          // A file system without links.
          renameSync(draft, path)
        }
      }),
    end: () => {
      closeSync(file)
      forget()
      process.off('exit', forget)
    },
  }
}

function attempt<T>(path: string, work: () => T, failure = fileError): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof CliError) throw error
    throw failure(`Cannot write ${path}: ${(error as Error).message}`)
  }
}
