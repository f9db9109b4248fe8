import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.update, {
  description:
    '--permission replaces the direct permissions of the role. Changes apply to the next request of everyone with the role. You cannot change the permissions of your own role.',
  examples: [
    'svc roles update "Night Shift" --permission devices:read,alerts:read',
    'Remove the inheritance\nsvc roles update "Night Shift Lead" --parent null',
    'svc roles update "Night Shift" --name "Night Watch" --force-mfa --dry-run',
  ],
})
