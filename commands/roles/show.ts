import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.show, {
  examples: [
    'svc roles show "Night Shift" --org blue-bakery',
    'svc roles show "Night Shift" --json --jq ".permissions[] | .resource + ":" + .action"\ndevices:read\ndevices:execute',
  ],
})
