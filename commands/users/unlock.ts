import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.unlock, {
  format: () => 'Unlocked\n',
  description:
    'After many wrong passwords a network is blocked for 15 minutes, and unknown clients everywhere need more than the password ' +
    'for an hour. Unlocking changes nothing else of the account.',
  examples: ['svc users unlock ada@example.com\nUnlocked'],
})
