import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.update, {
  preset: {
    status: 'active',
    name: undefined,
    url: undefined,
    secret: undefined,
    events: undefined,
    headers: undefined,
  },
  format: ({ name }) => `${String(name)} is active; svc webhooks replay sends the stored events\n`,
  summary: 'Resume a webhook that is paused or failed',
  examples: [
    'svc webhooks resume "Ticket system"\nTicket system is active; svc webhooks replay sends the stored events',
    'svc webhooks resume "Ticket system" -q && svc webhooks replay "Ticket system" --status kept',
  ],
})
