import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.dead, {
  columns: ['id', 'webhookId', 'event', 'failureClass', 'attempt', 'createdAt', 'errorMessage'],
  description:
    'svc webhooks retry sends one of them again, svc webhooks replay all of a webhook; deliveries that were sent again are no longer listed.',
  examples: [
    'svc webhooks dead --org blue-bakery --since 1d --columns id,event,failureClass\nID                                    EVENT            FAILURE CLASS\n0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f  device.enrolled  refused',
  ],
})
