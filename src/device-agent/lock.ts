import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import lockfile from 'proper-lockfile'
import { Problem } from '../core/errors.ts'

const staleMs = 6000
/** Longer than a lock takes to go stale, whose time can lie a second ahead. */
const maxWaitMs = staleMs + 2000

/**
 * `agent` is held by the process that a person starts, `main` by the one that its watchdog has started: the agent of a
 * watchdog that was killed may need a moment to notice.
 */
export type LockName = 'agent' | 'main'

/**
 * Makes this the only agent on a state directory; fails when another one runs. A lock whose holder was
 * killed ends by itself within eight seconds, which are waited for. `onLost` is called when the lock was
 * taken away in spite of all that.
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
      // A lock that was lost is nobody's to release.
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

/** The process named in the file, if it runs and is not a former life of this one. */
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
