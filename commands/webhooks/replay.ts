import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.replay, {
  preset: { after: undefined, through: undefined },
  batches: {
    next: ({ nextAfter, through }) => (nextAfter === null ? undefined : { after: nextAfter, through }),
    merge: (before, reply) => ({
      ...reply,
      deliveries: Number(before.deliveries) + Number(reply.deliveries),
    }),
    progress: { what: 'Replaying', unit: 'deliveries', done: ({ deliveries }) => Number(deliveries) },
  },
  format: ({ deliveries }) =>
    deliveries === 1 ? '1 delivery is sent again\n' : `${String(deliveries)} deliveries are sent again\n`,
  description:
    'Sends each as a new delivery of the same event, oldest first; deliveries stored during a pause keep their id and sequence. Those that were sent again before are skipped. Without --status: failed deliveries, and those stored while the webhook was paused.',
  examples: [
    'svc webhooks replay "Ticket system" --since 2h\n12 deliveries are sent again',
    'svc webhooks replay "Ticket system" --status delivered --since 2026-01-31T12:00:00Z --until 2026-01-31T13:00:00Z',
  ],
})
