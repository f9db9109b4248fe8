import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.update, {
  description:
    '--permission replaces what the role grants by itself. It takes effect on the next request of everyone who holds the role. You cannot change the permissions of your own role.',
  examples: [
    'svc roles update "Night Shift" --permission devices:read,alerts:read',
    'Inherit from nothing any more\nsvc roles update "Night Shift Lead" --parent null',
    'svc roles update "Night Shift" --name "Night Watch" --force-mfa --dry-run',
  ],
})
