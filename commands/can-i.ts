import { command } from '../src/cli/command.ts'
import { formatVerdict, isAllowed } from '../src/cli/roles.ts'
import { permissions } from '../src/identity/permissions/contract.ts'

export default command(permissions.canI, {
  args: ['action', 'resource'],
  format: formatVerdict,
  isSuccess: isAllowed,
  description: 'Exits with 0 for yes and 1 for no. Questions about others need users:read.',
  examples: [
    'svc can-i read devices\nyes: The role "Org Viewer" grants devices:read',
    'svc can-i write devices || echo ask somebody else',
    'svc can-i delete sites --as-role "Night Shift" --org blue-bakery --json',
  ],
})
