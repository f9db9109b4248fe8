import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.resetMfa, {
  format: () => 'Second factors removed\n',
  description: 'For someone who lost theirs. They are signed out, told by mail, and enrol anew.',
  examples: ['svc users reset-mfa ada@example.com\nSecond factors removed'],
})
