import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.show, {
  summary: 'Show a delivery: the request, the answer, and a hint when it failed',
  examples: [
    'svc webhooks delivery "Ticket system" 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f --jq .hint\nnothing listens there: is the receiver running, and is the port right?',
  ],
})
