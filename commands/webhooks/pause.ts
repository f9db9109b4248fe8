import { command } from '../../src/cli/command.ts'
import { storedHours, webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.update, {
  preset: {
    status: 'paused',
    name: undefined,
    url: undefined,
    secret: undefined,
    events: undefined,
    headers: undefined,
  },
  format: ({ name }) => `${String(name)} is paused: events are stored for ${storedHours} hours\n`,
  summary: 'Stop sending to a webhook for a while',
  description: `Events that happen meanwhile are stored for ${storedHours} hours; svc webhooks replay sends them. Deliveries that were due before are sent when it is resumed.`,
  examples: [
    `svc webhooks pause "Ticket system"\nTicket system is paused: events are stored for ${storedHours} hours`,
  ],
})
