import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.show, {
  description: 'Includes the number of deliveries in each state.',
  examples: [
    'svc webhooks show "Ticket system"\nId:         0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a\nOrg id:     0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nName:       Ticket system\nUrl:        https://hooks.example.com/devices\nHas secret: yes',
    'svc webhooks show "Ticket system" --jq .deliveryStats',
  ],
})
