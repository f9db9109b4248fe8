import { command } from '../../src/cli/command.ts'
import { formatInvited } from '../../src/cli/invitations.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.resendInvite, {
  args: ['userId'],
  format: formatInvited,
  examples: ['svc users resend ada@example.com\nA mail was sent'],
})
