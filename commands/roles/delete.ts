import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.remove, {
  description: 'Only a role that nobody has and no other role inherits from.',
  examples: [
    'svc roles delete "Night Shift" --yes\nRole deleted',
    'svc roles delete "Night Shift" --yes --ignore-not-found',
  ],
})
