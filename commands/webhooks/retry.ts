import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.retry, {
  description:
    'As a new delivery of the same event: by the id of the event a receiver that has it already can tell. The one that failed stays as it is.',
  examples: [
    'svc webhooks retry "Ticket system" 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f\nDelivery retry queued',
  ],
})
