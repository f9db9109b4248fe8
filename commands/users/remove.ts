import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.remove, {
  warning: 'Their access to this tenant ends at once',
  format: () => 'User removed\n',
  description: 'Removes the membership and revokes its sessions. The account and its other memberships stay.',
  examples: [
    'svc users remove ada@example.com --yes\nUser removed',
    'svc users remove ada@example.com --yes --ignore-not-found',
  ],
})
