import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.update, {
  preset: {
    status: 'paused',
    ...{ name: undefined, url: undefined, secret: undefined, events: undefined, headers: undefined },
  },
  format: ({ name }) => `${String(name)} is paused: what happens is kept for 72 hours\n`,
  summary: 'Send nothing to a webhook for a while',
  description:
    'What happens meanwhile is kept for 72 hours; svc webhooks replay sends it. What was due before goes out when it is resumed.',
  examples: [
    'svc webhooks pause "Ticket system"\nTicket system is paused: what happens is kept for 72 hours',
  ],
})
