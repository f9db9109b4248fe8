import type { DeliveryOutcome } from '../src/webhooks/deliveries/rules.ts'
import type { Metric } from './metrics.ts'

/** Counts what this process has tried to deliver, by how that ended. */
export class WebhookWatch {
  readonly #results = new Map<string, number>([['delivered', 0]])

  add({ failureClass }: Pick<DeliveryOutcome, 'failureClass'>): void {
    const result = failureClass ?? 'delivered'
    this.#results.set(result, (this.#results.get(result) ?? 0) + 1)
  }

  metrics(): Metric[] {
    return [
      {
        name: 'svc_webhook_attempts_total',
        kind: 'counter',
        help: 'Attempts of this process to deliver to a webhook: delivered, or the class of the failure.',
        values: [...this.#results].map(([result, value]) => ({ labels: { result }, value })),
      },
    ]
  }
}
