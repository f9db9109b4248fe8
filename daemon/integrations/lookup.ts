import { type LookupAddress, type LookupOptions, lookup } from 'node:dns'
import type { Resolve } from './guard.ts'

type Done = Parameters<Resolve>[2]

/** Concurrent lookups, and those of names that were slow the last time. */
const usual = { atOnce: 8, lateAtOnce: 2, lateMs: 1000 }
/** Most remembered slow names. */
const maxLate = 10_000

/**
 * The lookup of the system, which reads /etc/hosts. It occupies a thread of the pool for as long as a name server
 * is silent, so their number is bounded, and slow names wait for each other; concurrent requests
 * for one name share a lookup.
 */
export function queuedLookup(limits: Partial<typeof usual> = {}, resolve: Resolve = lookup): Resolve {
  const { atOnce, lateAtOnce, lateMs } = { ...usual, ...limits }
  const asked = new Map<string, Done[]>()
  const late = new Set<string>()
  const waiting: Record<'prompt' | 'late', (() => void)[]> = { prompt: [], late: [] }
  let running = 0
  let runningLate = 0

  function go(): void {
    while (running < atOnce) {
      const begin = waiting.prompt.shift() ?? (runningLate < lateAtOnce ? waiting.late.shift() : undefined)
      if (!begin) return
      begin()
    }
  }

  function look(hostname: string, options: LookupOptions & { all: true }, key: string): void {
    const wasLate = late.has(hostname)
    const begun = performance.now()
    running += 1
    if (wasLate) runningLate += 1
    resolve(hostname, options, (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => {
      running -= 1
      if (wasLate) runningLate -= 1
      if (late.size >= maxLate) late.clear()
      if (performance.now() - begun >= lateMs) late.add(hostname)
      else late.delete(hostname)
      const all = asked.get(key) ?? []
      asked.delete(key)
      go()
      for (const done of all) done(error, addresses)
    })
  }

  return (hostname, options, done) => {
    const { family, hints, order } = options
    const key = JSON.stringify([hostname, family, hints, order])
    const others = asked.get(key)
    if (others) return void others.push(done)
    asked.set(key, [done])
    waiting[late.has(hostname) ? 'late' : 'prompt'].push(() => look(hostname, options, key))
    go()
  }
}
