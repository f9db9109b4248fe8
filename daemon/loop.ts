import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { classifyDatabaseError, isOutage } from '../src/storage/dialect.ts'
import { onOwnBehalf } from '../src/storage/turns.ts'
import type { DatabaseWatch } from './database-watch.ts'

/** Work in the background: woken by commits, swept every so often, one run at a time. */
export type Loop = {
  wake(): void
  /** Ends after the run that is under way. */
  stop(): Promise<void>
}

export type LoopParts = {
  log: Logger
  /** Told of what failed. */
  database?: Pick<DatabaseWatch, 'note'>
}

const sayAgainMs = 60_000

/**
 * Runs `work` soon after each wake and at least every `everyMs`, by itself first after `firstMs`. A failed run is tried
 * again; it is logged at first, once a minute while it fails in the same way, and when it works again. Two runs are
 * `restMs` apart, for work that is cheaper the more of it there is at once.
 */
export function loop(
  name: string,
  work: () => Promise<void>,
  everyMs: number,
  { log, database }: LoopParts,
  { firstMs = everyMs, restMs = 0 }: { firstMs?: number; restMs?: number } = {},
): Loop {
  let stopped = false
  let woken = false
  let restedAt = 0
  let failures = 0
  let said = { message: '', until: 0 }
  let running: Promise<void> | undefined

  const failed = (err: unknown): void => {
    failures += 1
    database?.note(err)
    // Of a database that cannot be used each loop would say the same, at length, in the words of each of its failures.
    const trouble = isOutage(err) ? classifyDatabaseError(err) : undefined
    const message = trouble ?? (err instanceof Error ? err.message : String(err))
    if (message === said.message && performance.now() < said.until) return
    said = { message, until: performance.now() + sayAgainMs }
    if (trouble === undefined) log.error({ err, loop: name, failures }, 'background work failed')
    else log.warn({ trouble, loop: name, failures }, 'background work waits for the database')
  }
  const worked = (): void => {
    if (failures === 0) return
    log.info({ loop: name, failures }, 'background work goes on')
    failures = 0
    said = { message: '', until: 0 }
  }
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
        await onOwnBehalf(work)
        worked()
        restedAt = performance.now() + restMs
      } catch (err) {
        failed(err)
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
