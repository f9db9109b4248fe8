import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import lockfile from 'proper-lockfile'
import { Problem } from '../core/errors.ts'

const staleMs = 6000
/** Longer than a lock takes to become stale; its timestamp can be one second ahead. */
const maxWaitMs = staleMs + 2000

/**
 * `agent` is locked by the process that a user starts, `main` by the one that its watchdog starts: the agent of a
 * killed watchdog may need a moment to notice.
 */
export type LockName = 'agent' | 'main'

/**
 * Ensures that only one agent uses a state directory; fails when another one runs. The lock of a killed process
 * becomes stale within eight seconds, for which this waits. `onLost` is called when the lock was lost nevertheless.
 */
export async function lockStateDir(
  stateDir: string,
  onLost: (reason: Problem) => void,
  signal: AbortSignal,
  name: LockName = 'agent',
): Promise<() => Promise<void>> {
  const pidFile = join(stateDir, `${name}.pid`)
  const lost = () => onLost(new Problem('conflict', `The lock on ${stateDir} was lost to another agent`))
  for (let waited = 0; ; waited += 250) {
    try {
      const release = await lockfile.lock(stateDir, {
        lockfilePath: join(stateDir, `${name}.lock`),
        stale: staleMs,
        update: staleMs / 3,
        onCompromised: lost,
      })
      writeFileSync(pidFile, `${process.pid}\n`)
      // A lost lock cannot be released.
      return () => release().catch(() => undefined)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') {
        throw new Problem('invalid_request', `Cannot lock ${stateDir}: ${(error as Error).message}`)
      }
      const holder = holderOf(pidFile)
      if ((holder !== undefined && name === 'agent') || waited > maxWaitMs) {
        const who = holder === undefined ? 'Another agent' : `Another agent (process ${holder})`
        throw new Problem('conflict', `${who} is running with the state directory ${stateDir}`)
      }
      await wait(250, undefined, { signal })
    }
  }
}

/** The process named in the file, if it runs and is not this process (a reused pid). */
function holderOf(pidFile: string): number | undefined {
  const pid = Number(existsSync(pidFile) && readFileSync(pidFile, 'utf8'))
  return Number.isInteger(pid) && pid > 0 && pid !== process.pid && runs(pid) ? pid : undefined
}

function runs(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
