import { spawn } from 'node:child_process'
import { constants, setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../../src/core/package-files.ts'
import type { Env } from '../variables.ts'

const program = fileURLToPath(packageFile('bin/svc.js'))

export type Ended = { code: number | null; stdout: string; stderr: string }

/** For a child to clean up; the service ends within ten seconds. */
const patienceMs = 5000

/** Most output that is kept of a child: its result is one JSON text. */
const maxText = 2 ** 20

/**
 * Runs an svc command with a low priority, but not the lowest: a backup that starves keeps its snapshot open. It has a channel to
 * this process, and ends when this process does (`endWithParent`). @throws when it cannot be started, or `signal` ends it
 */
export function runSvc(args: readonly string[], env: Env, signal: AbortSignal): Promise<Ended> {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<Ended>()
  const child = spawn(process.execPath, [program, ...args], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { ...env },
  })
  let late: NodeJS.Timeout | undefined
  const stop = () => {
    // It cleans up, as if this process had gone.
    if (child.connected) child.disconnect()
    late = setTimeout(() => child.kill('SIGKILL'), patienceMs)
  }
  signal.addEventListener('abort', stop, { once: true })
  try {
    if (child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_BELOW_NORMAL)
  } catch {
    // It has ended already.
  }
  const texts = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]!.setEncoding('utf8').on('data', (text: string) => {
      texts[name] = (texts[name] + text).slice(-maxText)
    })
  }
  child.on('error', reject)
  child.on('exit', () => {
    signal.removeEventListener('abort', stop)
    clearTimeout(late)
    // Once its channel is closed from here there is no `close`.
    if (signal.aborted) reject(signal.reason)
  })
  child.on('close', (code) => resolve({ code, ...texts }))
  return promise
}

/** For a command that `runSvc` may have started: `end` is called when the process that started it is gone. */
export function endWithParent(end: () => void): void {
  if (process.channel === undefined) return
  process.once('disconnect', end)
  process.channel.unref()
}
