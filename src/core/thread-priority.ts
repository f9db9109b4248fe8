import { setPriority } from 'node:os'

/** Niceness of a thread that answers expensive questions; the one that serves every request has 0. */
const niceness = 5

/**
 * Lets the main thread go first where all processors are busy: it serves everybody, and one caller's expensive
 * questions occupy several threads. Linux has a priority for each thread (setpriority(2)); elsewhere it would be that of
 * the whole process.
 */
export function lowerThreadPriority(): void {
  if (process.platform === 'linux') setPriority(0, niceness)
}
