import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

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

/** Flushes the content of the file to the disk. */
export const syncFile = (path: string): void => fsyncPath(path, 'r+')

/** Flushes the directory entries to the disk. */
export function syncDirectory(path: string): void {
  if (process.platform !== 'win32') fsyncPath(path, 'r')
}

function fsyncPath(path: string, flags: string): void {
  const descriptor = openSync(path, flags)
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** The JSON of a file; undefined when the file is missing or not valid JSON. */
export function readJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'))
  } catch {
    return undefined
  }
}
