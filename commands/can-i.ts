import { command } from '../src/cli/command.ts'
import { formatVerdict, isAllowed, readPermission } from '../src/cli/roles.ts'
import { permissions } from '../src/identity/permissions/contract.ts'

export default command(permissions.canI, {
  args: ['action', 'resource'],
  readArgs: readPermission,
  format: formatVerdict,
  isSuccess: isAllowed,
  description:
    'The question is two words, or a permission such as devices:read. Exits with 0 for yes and 1 for no. Questions about others need users:read.',
  examples: [
    'svc can-i read devices\nyes: The role "Org Viewer" grants devices:read',
    'svc can-i devices:read && svc devices',
    'svc can-i write devices || echo ask somebody else',
    'svc can-i delete sites --as-role "Night Shift" --org blue-bakery --json',
  ],
})
