import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.signOut, {
  format: () => 'Signed out\n',
  examples: ['svc users sign-out ada@example.com\nSigned out'],
})
