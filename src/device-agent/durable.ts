import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { syncDirectory } from '../core/sync-directory.ts'

/** Replaces a file atomically and durably: after a power failure it has the old content or the new one. */
export function replaceFile(file: string, text: string): void {
  const draft = `${file}.new`
  rmSync(draft, { force: true })
  const descriptor = openSync(draft, 'wx', 0o600)
  try {
    writeFileSync(descriptor, text)
    fsyncSync(descriptor)
  } catch (error) {
    // Frees the space on a full disk.
    rmSync(draft, { force: true })
    throw error
  } finally {
    closeSync(descriptor)
  }
  renameSync(draft, file)
  syncDirectory(dirname(file))
}

/** Whether the file system refused something, as on a full disk; any other error is a bug. */
export const isFileError = (error: unknown): error is NodeJS.ErrnoException =>
  error instanceof Error && 'syscall' in error

/** The JSON of a file; undefined when the file is missing or not valid JSON. */
export function readJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'))
  } catch {
    // It is missing, or a crash or a person has damaged it: the caller starts without it.
    return undefined
  }
}
