import type { Registry } from 'prom-client'
import { Gauge } from 'prom-client'
import { newId } from '../src/core/new-id.ts'
import type { Clock } from '../src/core/time.ts'
import { LeaseLostError } from '../src/storage/database-errors.ts'
import { type Leases, leasesOn, renewalSeconds } from '../src/storage/leases.ts'
import type { Storage } from '../src/storage/open.ts'
import { type Loop, type LoopOptions, type LoopParts, loop } from './loop.ts'

type Parts = LoopParts & { storage: Storage; clock: Clock; metrics: Registry }

/** So that processes that wait for a lease to expire do not ask for it all at once. */
const delayMs = () => 100 + Math.random() * 400

/** The background loops of a process. */
export class Loops {
  readonly #parts: Parts
  readonly #leases: Leases
  readonly #all: Loop[] = []
  readonly #leased: Loop[] = []

  constructor(parts: Parts) {
    this.#parts = parts
    this.#leases = leasesOn(parts.storage, { holder: newId(), clock: parts.clock })
    const leases = this.#leases
    const held: Gauge = new Gauge({
      name: 'svc_lease_held',
      help: 'Background work that one process does at a time: 1 on the process that does it, 0 on the others.',
      labelNames: ['name'],
      registers: [parts.metrics],
      collect: () => {
        for (const name of leases.names) held.set({ name }, Number(leases.isHeld(name)))
      },
    })
  }

  /** Every process does this work. */
  local(name: string, work: () => Promise<void>, everyMs: number, options?: LoopOptions): Loop {
    return this.add(loop(name, work, everyMs, this.#parts, options))
  }

  add(made: Loop): Loop {
    this.#all.push(made)
    return made
  }

  /**
   * One of the processes on the database does this work: the one that has the lease with the name of the loop. The storage
   * given to `work` refuses its writes once another process has taken the work over.
   */
  leased(
    name: string,
    work: (storage: Storage) => Promise<unknown>,
    everyMs: number,
    options?: LoopOptions,
  ): Loop {
    this.#leases.add(name)
    const run = async () => {
      if (!this.#leases.isHeld(name)) return
      try {
        await work(this.#leases.fenced(name))
      } catch (error) {
        if (!(error instanceof LeaseLostError)) throw error
        this.#parts.log.warn({ loop: name }, 'background work ends here: another process has taken it over')
      }
    }
    const made = this.local(name, run, everyMs, options)
    this.#leased.push(made)
    return made
  }

  /** All loops, and one that keeps the leases. */
  all(): Loop[] {
    return [...this.#all, this.#keeper()]
  }

  #keeper(): Loop {
    let next: NodeJS.Timeout | undefined
    const renew = async () => {
      const expiryMs = await this.#leases.renew()
      clearTimeout(next)
      if (expiryMs !== undefined) next = setTimeout(wake, expiryMs + delayMs()).unref()
    }
    const { wake, stop } = loop('leases', renew, renewalSeconds * 1000, this.#parts)
    wake()
    return {
      wake,
      stop: async () => {
        await Promise.all(this.#leased.map((one) => one.stop()))
        await stop()
        clearTimeout(next)
        // A database that does not answer now lets them expire.
        await this.#leases.release().catch(() => {})
      },
    }
  }
}
