import { readFileSync, statSync } from 'node:fs'
import os from 'node:os'
import { packageLists } from './software.ts'

/**
 * A text that changes with the inventory: addresses, processors, memory, mounts and the package list. Computed
 * without starting a process, so that every heartbeat can compare it.
 */
export function inventorySignature(): string {
  return JSON.stringify([
    os.networkInterfaces(),
    os.cpus().length,
    os.totalmem(),
    orNothing(() => readFileSync('/proc/self/mounts', 'utf8')),
    packageLists.map((path) => orNothing(() => statSync(path).mtimeMs)),
  ])
}

function orNothing<T>(read: () => T): T | null {
  try {
    return read()
  } catch {
    // A machine need not have it, or let this user read it.
    return null
  }
}
