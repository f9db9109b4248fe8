import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.available, {
  description: 'svc roles permissions lists the permissions that routes require.',
  examples: ['svc roles available --json --jq ".actions[]"\nview\ncreate\nupdate\ndelete\nexecute'],
})
