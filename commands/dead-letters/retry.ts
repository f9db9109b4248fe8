import { command } from '../../src/cli/command.ts'
import { deadLetters } from '../../src/service/dead-letters/contract.ts'

export default command(deadLetters.retry, {
  format: ({ source }) =>
    source === 'events'
      ? 'Queued as a delivery\n'
      : 'Recorded at the end of its chain; if it is refused again, it is a dead letter again\n',
  description:
    'For when its cause is gone, such as a constraint or a trigger of your own. An event goes to its webhook as a delivery with the same event id. An audit entry goes to the end of its chain, and its substitute stays. One that can never be written is refused (exit 6).',
  examples: ['svc dead-letters retry 17\nQueued as a delivery'],
})
