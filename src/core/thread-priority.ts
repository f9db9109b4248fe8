import { getPriority, setPriority } from 'node:os'

/** Added to the niceness of the process. */
const addedNiceness = 5
const maxNiceness = 19

/**
 * Lets the main thread go first where all processors are busy: it serves everybody, and one caller's expensive
 * read queries occupy several threads. Linux has a priority for each thread (setpriority(2)); elsewhere it would be that of
 * the whole process.
 */
export function lowerThreadPriority(): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(0, Math.min(maxNiceness, getPriority() + addedNiceness))
  } catch {
    // A sandbox may refuse it: the thread works with the usual priority.
  }
}
