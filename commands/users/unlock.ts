import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.unlock, {
  format: () => 'Unlocked\n',
  description:
    'After many wrong passwords a network is stopped for 15 minutes, and strangers everywhere need more than the password ' +
    'for an hour. Nothing else of the account changes.',
  examples: ['svc users unlock ada@example.com\nUnlocked'],
})
