import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

/** Replaces the file as a whole and on the disk: after a power cut there is the old one or the new one. */
export function replaceFile(file: string, text: string): void {
  const draft = `${file}.new`
  rmSync(draft, { force: true })
  const descriptor = openSync(draft, 'wx', 0o600)
  try {
    writeFileSync(descriptor, text)
    fsyncSync(descriptor)
  } catch (error) {
    // On a full disk the space is given back.
    rmSync(draft, { force: true })
    throw error
  } finally {
    closeSync(descriptor)
  }
  renameSync(draft, file)
  syncDirectory(dirname(file))
}

/** What is in the file now is on the disk. */
export const syncFile = (path: string): void => fsyncPath(path, 'r+')

/** The names in the directory are on the disk. */
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

/** The JSON of a file; undefined where there is none, or it is no JSON. */
export function readJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'))
  } catch {
    return undefined
  }
}
