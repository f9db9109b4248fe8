import { type LookupAddress, type LookupOptions, lookup } from 'node:dns'
import type { Resolve } from './guard.ts'

type Done = Parameters<Resolve>[2]

/**
 * The system's own look-up, which knows /etc/hosts: it takes a thread of the pool for as long as a name server
 * keeps silent, so only some run at once; whoever asks for a name that is being looked up waits for that.
 */
export function lookupInTurn(atOnce = 8, resolve: Resolve = lookup): Resolve {
  const asked = new Map<string, Done[]>()
  const waiting: (() => void)[] = []
  let running = 0

  function begin(hostname: string, options: LookupOptions & { all: true }, key: string): void {
    running += 1
    resolve(hostname, options, (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => {
      running -= 1
      waiting.shift()?.()
      const all = asked.get(key) ?? []
      asked.delete(key)
      for (const done of all) done(error, addresses)
    })
  }

  return (hostname, options, done) => {
    const { family, hints, order } = options
    const key = JSON.stringify([hostname, family, hints, order])
    const others = asked.get(key)
    if (others) return void others.push(done)
    asked.set(key, [done])
    if (running < atOnce) begin(hostname, options, key)
    else waiting.push(() => begin(hostname, options, key))
  }
}
