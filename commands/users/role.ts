import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.assignRole, {
  format: () => 'Role assigned\n',
  examples: ['svc users role ada@example.com --role "Org Admin"\nRole assigned'],
})
