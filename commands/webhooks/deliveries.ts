import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.list, {
  columns: ['id', 'sequence', 'event', 'status', 'attempt', 'responseStatus', 'createdAt', 'errorMessage'],
  examples: [
    'svc webhooks deliveries "Ticket system" --columns id,event,status,attempt\nID                                    EVENT            STATUS     ATTEMPT\n0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f  device.enrolled  delivered  1',
    'svc webhooks deliveries "Ticket system" --status failed --all -o ndjson',
  ],
})
