import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.changeAccess, {
  description: 'Limits that are not given do not change; null removes one.',
  examples: [
    'Only one site\nsvc users access ada@example.com --site "Main Office"',
    'Every site again\nsvc users access ada@example.com --site null',
    'A partner user, some organizations\nsvc users access bob@example.com --org-access selected --selected-org blue-bakery --selected-org red-barn',
  ],
})
