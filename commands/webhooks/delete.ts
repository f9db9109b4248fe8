import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.remove, {
  ends: {
    entry: webhooks.show,
    counts: ({ deliveryStats }) => ({ deliveries: (deliveryStats as { total: number }).total }),
  },
  format: () => 'Deleted, with its deliveries\n',
  examples: [
    'svc webhooks delete "Ticket system" --yes\nDeleted, with its deliveries',
    'svc webhooks delete 0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a --yes --ignore-not-found',
  ],
})
