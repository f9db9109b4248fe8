import { type Counter, Gauge, Registry } from 'prom-client'
import { type Clock, secondsBetween } from '../src/core/time.ts'
import type { Storage } from '../src/storage/open.ts'
import type { DeliveryOutcome } from '../src/webhooks/deliveries/rules.ts'
import { countDue } from '../src/webhooks/queues.ts'
import { addCounter, type StoredMetrics } from './metrics.ts'

/** Webhooks, and due deliveries of each, that are counted: more look like as many. */
const maxCounted = 1000
/** How long the backlog is served before it is counted again. */
const keepMs = 5000

/** Counts the delivery attempts of this process, by how they end, and what is due across all tenants. */
export class WebhookWatch {
  readonly #attempts: Counter<'result'>
  readonly #ended: Counter<'status'>
  readonly stored: StoredMetrics

  constructor(storage: Storage, clock: Clock, metrics: Registry) {
    const attempts = {
      name: 'svc_webhook_attempts_total',
      help: 'Attempts of this process to deliver to a webhook: delivered, or the class of the failure.',
    }
    this.#attempts = addCounter(metrics, attempts, 'result', ['delivered'])
    const ended = {
      name: 'svc_webhook_deliveries_ended_total',
      help: 'Deliveries of this process that ended: delivered, or failed in the last attempt.',
    }
    this.#ended = addCounter(metrics, ended, 'status', ['delivered', 'failed'])
    const registry = new Registry()
    const due = new Gauge({
      name: 'svc_webhook_deliveries_due',
      help: `Deliveries that are due, of at most ${maxCounted} webhooks and at most ${maxCounted} of each.`,
      registers: [registry],
    })
    const age = new Gauge({
      name: 'svc_webhook_oldest_due_age_seconds',
      help: 'Seconds since the oldest due delivery became due; 0: none is due.',
      registers: [registry],
    })
    const refresh = async () => {
      const now = clock()
      const { count, oldest } = await countDue(storage.heavy, now, maxCounted)
      due.set(count)
      age.set(oldest === undefined ? 0 : secondsBetween(oldest, now))
    }
    this.stored = { registry, refresh, keepMs }
  }

  add({ failureClass, status }: Pick<DeliveryOutcome, 'failureClass' | 'status'>): void {
    this.#attempts.inc({ result: failureClass ?? 'delivered' })
    if (status === 'delivered' || status === 'failed') this.#ended.inc({ status })
  }
}
