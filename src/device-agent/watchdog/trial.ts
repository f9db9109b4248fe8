import type { MonotonicClock } from '../clock.ts'
import type { Child } from './child.ts'
import { describeExit } from './child.ts'

/**
 * Waits until a binary on trial has sent a heartbeat as the expected version. Returns why it failed, or undefined. An
 * abort stops the waiting, not the trial.
 */
export async function awaitTrial(
  child: Child,
  {
    version,
    seconds,
    clock,
    signal,
  }: { version: string; seconds: number; clock: MonotonicClock; signal: AbortSignal },
): Promise<string | undefined> {
  const over = new AbortController()
  const reported = new Promise<string | undefined>((resolve) => {
    child.onMessage((message) => {
      if (message.said !== 'alive') return
      if (message.version !== version) resolve(`it reports version ${message.version.slice(0, 50)}`)
      else if (message.heartbeats > 0) resolve(undefined)
    })
  })
  const ended = child.ended.then((end) =>
    end.error ? describeExit(end) : `${describeExit(end)} before its first heartbeat`,
  )
  const late = clock
    .sleep(seconds * 1000, AbortSignal.any([signal, over.signal]))
    .then(() => `no heartbeat within ${seconds} s`)
  // Prevents an unhandled rejection of the promise that loses the race.
  late.catch(() => {})
  try {
    return await Promise.race([reported, ended, late])
  } finally {
    over.abort()
  }
}
