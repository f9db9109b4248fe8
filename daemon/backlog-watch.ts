import { Gauge, Registry } from 'prom-client'
import { type Clock, secondsBetween } from '../src/core/time.ts'
import { countDueMails } from '../src/messages/store.ts'
import type { Storage } from '../src/storage/open.ts'
import { countEvents } from '../src/webhooks/queues.ts'
import type { StoredMetrics } from './metrics.ts'

/** Rows of each queue that are counted: more look like as many. */
const maxCounted = 10_000
const keepMs = 5000

/** What waits for a background loop, across all tenants. Audit entries and deliveries have metrics of their own. */
export function watchBacklog(storage: Pick<Storage, 'heavy'>, clock: Clock): StoredMetrics {
  const registry = new Registry()
  const common = { labelNames: ['queue'] as const, registers: [registry] }
  const rows = new Gauge({
    name: 'svc_backlog_rows',
    help: `Events without deliveries yet, and mails that are due; ${maxCounted} stands for as many or more.`,
    ...common,
  })
  const age = new Gauge({
    name: 'svc_backlog_oldest_age_seconds',
    help: 'Age of the oldest item that waits; 0: none waits.',
    ...common,
  })
  const refresh = async () => {
    const now = clock()
    const counts = {
      events: await countEvents(storage.heavy, maxCounted),
      mails: await countDueMails(storage.heavy, now, maxCounted),
    }
    for (const [queue, { count, oldest }] of Object.entries(counts)) {
      rows.set({ queue }, count)
      age.set({ queue }, oldest === undefined ? 0 : Math.max(0, secondsBetween(oldest, now)))
    }
  }
  return { registry, refresh, keepMs }
}
