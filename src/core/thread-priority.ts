import { getPriority, setPriority } from 'node:os'

/** How much nicer a thread that answers expensive questions is than the one that serves every request. */
const nicer = 5
const nicest = 19

/**
 * Lets the main thread go first where all processors are busy: it serves everybody, and one caller's expensive
 * questions occupy several threads. Linux has a priority for each thread (setpriority(2)); elsewhere it would be that of
 * the whole process.
 */
export function lowerThreadPriority(): void {
  if (process.platform === 'linux') setPriority(0, Math.min(nicest, getPriority() + nicer))
}
