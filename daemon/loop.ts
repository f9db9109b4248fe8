import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { WriteGate } from '../src/storage/copy/write-gate.ts'
import { classifyDatabaseError, isOutage } from '../src/storage/database-errors.ts'
import { runForService } from '../src/storage/fair-queue.ts'
import type { DatabaseWatch } from './database-watch.ts'
import type { LoopWatch } from './loop-watch.ts'

/** Background work: woken by commits and at an interval, one run at a time. */
export type Loop = {
  wake(): void
  /** Resolves after the current run. */
  stop(): Promise<void>
}

export type LoopParts = {
  log: Logger
  /** Receives failures. */
  database?: Pick<DatabaseWatch, 'note'>
  /** Observes the runs. */
  loops?: LoopWatch
  /** While it is closed nothing runs. */
  gate?: Pick<WriteGate, 'closure'>
}

export type LoopOptions = {
  /** Milliseconds until the first run. */
  firstMs?: number
  /** Milliseconds between two runs at least, for work that is cheaper in larger batches. */
  restMs?: number
}

/** For the first run of work with a long interval: soon, and not in all processes that start together at once. */
export const soonAfterStart = (): number => 30_000 + Math.random() * 30_000

const sayAgainMs = 60_000

/**
 * Runs `work` soon after each wake and at least every `everyMs`, first after `firstMs`. A failed run is tried
 * again; it is logged at first, once a minute while it fails in the same way, and when it succeeds again.
 */
export function loop(
  name: string,
  work: () => Promise<void>,
  everyMs: number,
  { log, database, loops, gate }: LoopParts,
  { firstMs = everyMs, restMs = 0 }: LoopOptions = {},
): Loop {
  let stopped = false
  let woken = false
  let restedAt = 0
  let failures = 0
  let said = { message: '', until: 0 }
  let running: Promise<void> | undefined
  loops?.started(name, everyMs)

  const failed = (err: unknown): void => {
    failures += 1
    database?.note(err)
    // While the database is unusable each loop would log the same outage with a stack.
    const trouble = isOutage(err) ? classifyDatabaseError(err) : undefined
    const message = trouble ?? (err instanceof Error ? err.message : String(err))
    if (message === said.message && performance.now() < said.until) return
    said = { message, until: performance.now() + sayAgainMs }
    if (trouble === undefined) log.error({ err, loop: name, failures }, 'background work failed')
    else log.warn({ trouble, loop: name, failures }, 'background work waits for the database')
  }
  const worked = (): void => {
    if (failures === 0) return
    log.info({ loop: name, failures }, 'background work continues')
    failures = 0
    said = { message: '', until: 0 }
  }
  const run = async (): Promise<void> => {
    // Waits a turn of the event loop, so that concurrent commits cause one run.
    await new Promise((resolve) => setImmediate(resolve))
    while (woken && !stopped) {
      // It is tried again in a second.
      if (gate?.closure !== undefined) return
      const rest = restedAt - performance.now()
      if (rest > 0) {
        await sleep(rest)
        continue
      }
      woken = false
      const begun = performance.now()
      try {
        await runForService(work)
        loops?.ended(name, performance.now() - begun, true)
        worked()
        restedAt = performance.now() + restMs
      } catch (err) {
        loops?.ended(name, performance.now() - begun, false)
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
