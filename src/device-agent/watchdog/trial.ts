import type { Clock } from '../clock.ts'
import type { Child } from './child.ts'
import { describeExit } from './child.ts'

/**
 * Waits until a binary on trial has made a heartbeat as the version it should be. Why it is no good, or undefined. An
 * abort ends the waiting, not the trial.
 */
export async function awaitTrial(
  child: Child,
  {
    version,
    seconds,
    clock,
    signal,
  }: { version: string; seconds: number; clock: Clock; signal: AbortSignal },
): Promise<string | undefined> {
  const over = new AbortController()
  const told = new Promise<string | undefined>((resolve) => {
    child.onMessage((message) => {
      if (message.said !== 'alive') return
      if (message.version !== version) resolve(`it says it is ${message.version.slice(0, 50)}`)
      else if (message.heartbeats > 0) resolve(undefined)
    })
  })
  const ended = child.ended.then((end) =>
    end.error ? describeExit(end) : `${describeExit(end)} before its first heartbeat`,
  )
  const late = clock
    .sleep(seconds * 1000, AbortSignal.any([signal, over.signal]))
    .then(() => `no heartbeat within ${seconds} s`)
  // Whoever loses the race may fail.
  late.catch(() => {})
  try {
    return await Promise.race([told, ended, late])
  } finally {
    over.abort()
  }
}
