import type { Counter, Registry } from 'prom-client'
import type { DeliveryOutcome } from '../src/webhooks/deliveries/rules.ts'
import { addCounter } from './metrics.ts'

/** Counts the delivery attempts of this process, by how they end. */
export class WebhookWatch {
  readonly #attempts: Counter<'result'>

  constructor(metrics: Registry) {
    const attempts = {
      name: 'svc_webhook_attempts_total',
      help: 'Attempts of this process to deliver to a webhook: delivered, or the class of the failure.',
    }
    this.#attempts = addCounter(metrics, attempts, 'result', ['delivered'])
  }

  add({ failureClass }: Pick<DeliveryOutcome, 'failureClass'>): void {
    this.#attempts.inc({ result: failureClass ?? 'delivered' })
  }
}
