import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.retry, {
  description:
    'Sends a new delivery of the same event: a receiver recognizes a repetition by the event id. The failed delivery does not change.',
  examples: [
    'svc webhooks retry "Ticket system" 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f\nDelivery retry queued',
  ],
})
