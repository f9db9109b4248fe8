import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.changeMe, {
  examples: ['svc profile update --name "Ada King"', 'svc profile update --avatar-url null'],
})
