import { command } from '../../src/cli/command.ts'
import { deadLetters } from '../../src/service/dead-letters/contract.ts'

export default command(deadLetters.retry, {
  format: ({ source }) =>
    source === 'events'
      ? 'Queued as a delivery\n'
      : 'Recorded at the end of its chain; what is refused again is a dead letter again\n',
  description:
    'Once what stood in its way is gone, such as a constraint or a trigger of your own: an event goes to its webhook as a delivery of the same event id, an audit entry to the end of its chain, where the one in its place stays. What can never be written is refused (exit 6).',
  examples: ['svc dead-letters retry 17\nQueued as a delivery'],
})
