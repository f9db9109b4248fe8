import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.clone, {
  description: 'The copy inherits from no role: it has every permission directly, and can be changed.',
  examples: [
    'svc roles clone "Org Technician" --org blue-bakery --name "Night Shift" -q\n0197c1c8-2b44-7d11-a3c0-5e6f7a8b9c0d',
  ],
})
