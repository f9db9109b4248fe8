import { command } from '../../src/cli/command.ts'
import { webhookDeliveries } from '../../src/webhooks/deliveries/contract.ts'

export default command(webhookDeliveries.replay, {
  preset: { after: undefined },
  inParts: {
    next: ({ nextAfter }) => (nextAfter === null ? undefined : { after: nextAfter }),
    joined: (before, reply) => ({
      ...reply,
      deliveries: Number(before.deliveries) + Number(reply.deliveries),
    }),
    progress: { what: 'Replaying', unit: 'deliveries', done: ({ deliveries }) => Number(deliveries) },
  },
  human: ({ deliveries }) =>
    deliveries === 1 ? '1 delivery is sent again\n' : `${String(deliveries)} deliveries are sent again\n`,
  description:
    'Each under the ids and the sequence it had, oldest first. Without --status those that failed and those that were kept while the webhook was paused.',
  examples: [
    'svc webhooks replay "Ticket system" --since 2h\n12 deliveries are sent again',
    'svc webhooks replay "Ticket system" --status delivered --since 2026-01-31T12:00:00Z --until 2026-01-31T13:00:00Z',
  ],
})
