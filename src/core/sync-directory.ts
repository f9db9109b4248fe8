import { closeSync, fsyncSync, openSync } from 'node:fs'

/** Flushes the entries of a directory to the disk, so that a new name survives a power failure. Windows has no such call. */
export function syncDirectory(path: string): void {
  if (process.platform !== 'win32') syncPath(path, 'r')
}

/** Flushes the content of a file to the disk. */
export const syncFile = (path: string): void => syncPath(path, 'r+')

function syncPath(path: string, flags: string): void {
  const descriptor = openSync(path, flags)
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
