import { command } from '../../src/cli/command.ts'
import { deadLetters } from '../../src/service/dead-letters/contract.ts'

export default command(deadLetters.remove, {
  format: () => 'Deleted\n',
  description: 'The audit log keeps its subject and its SHA-256.',
  examples: [
    'svc dead-letters delete 17 --yes\nDeleted',
    'svc dead-letters delete 17 --yes --ignore-not-found',
  ],
})
