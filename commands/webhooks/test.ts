import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.test, {
  description: 'Sent like any other delivery, signed and retried, also while the webhook is paused.',
  examples: [
    'svc webhooks test "Ticket system"\nTest delivery queued',
    'svc webhooks test "Ticket system" --event alert.triggered --payload \'{"severity": "high"}\' --jq .delivery.id',
  ],
})
