import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.resetMfa, {
  format: () => 'Second factors removed\n',
  description: 'For somebody who lost theirs. They are signed out, notified by mail, and set up new ones.',
  examples: ['svc users reset-mfa ada@example.com\nSecond factors removed'],
})
