import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.changeAccess, {
  description: 'What is not named stays as it is; null takes a limit away.',
  examples: [
    'Only one site\nsvc users access ada@example.com --site-ids "Main Office"',
    'Every site again\nsvc users access ada@example.com --site-ids null',
    'A partner user, some organizations\nsvc users access bob@example.com --org-access selected --org-ids blue-bakery --org-ids red-barn',
  ],
})
