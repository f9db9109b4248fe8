import { readFileSync, statSync } from 'node:fs'
import os from 'node:os'
import { dpkgStatusFile } from './software.ts'

/**
 * A text that differs when the inventory does: addresses, processors, memory, mounts and the package
 * list. It starts no process, so that every heartbeat can compare it.
 */
export function inventorySignature(): string {
  return JSON.stringify([
    os.networkInterfaces(),
    os.cpus().length,
    os.totalmem(),
    orNothing(() => readFileSync('/proc/self/mounts', 'utf8')),
    orNothing(() => statSync(dpkgStatusFile).mtimeMs),
  ])
}

function orNothing<T>(read: () => T): T | null {
  try {
    return read()
  } catch {
    return null
  }
}
