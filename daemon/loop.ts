import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'

/** Work in the background: woken by commits, swept every so often, one run at a time. */
export type Loop = {
  wake(): void
  /** Ends after the run that is under way. */
  stop(): Promise<void>
}

/**
 * Runs `work` soon after each wake and at least every `everyMs`, by itself first after `firstMs`; a failed run is
 * logged and tried again. Two runs are `restMs` apart, for work that is cheaper the more of it there is at once.
 */
export function loop(
  name: string,
  work: () => Promise<void>,
  everyMs: number,
  log: Logger,
  { firstMs = everyMs, restMs = 0 }: { firstMs?: number; restMs?: number } = {},
): Loop {
  let stopped = false
  let woken = false
  let restedAt = 0
  let running: Promise<void> | undefined

  const run = async (): Promise<void> => {
    // A turn of the event loop, so that commits that come together are one run.
    await new Promise((resolve) => setImmediate(resolve))
    while (woken && !stopped) {
      const rest = restedAt - performance.now()
      if (rest > 0) {
        await sleep(rest)
        continue
      }
      woken = false
      try {
        await work()
        restedAt = performance.now() + restMs
      } catch (err) {
        log.error({ err, loop: name }, 'background work failed')
        return
      }
    }
  }
  const wake = (): void => {
    woken = true
    if (stopped || running) return
    running = run().finally(() => {
      running = undefined
      if (woken && !stopped) setTimeout(wake, 1000).unref()
    })
  }
  let every: NodeJS.Timeout | undefined
  const first = setTimeout(() => {
    wake()
    every = setInterval(wake, everyMs)
    every.unref()
  }, firstMs)
  first.unref()
  return {
    wake,
    async stop() {
      stopped = true
      clearTimeout(first)
      clearInterval(every)
      await running
    },
  }
}
