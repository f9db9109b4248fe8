import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.change, {
  examples: [
    'svc users update ada@example.com --name "Ada King"',
    'svc users update ada@example.com --status disabled',
  ],
})
