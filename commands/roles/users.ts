import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.holders, {
  columns: ['id', 'name', 'email', 'status', 'lastLoginAt'],
  examples: ['svc roles users "Night Shift" --org blue-bakery', 'svc roles users "Org Admin" --all --csv'],
})
