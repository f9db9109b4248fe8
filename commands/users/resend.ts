import { command } from '../../src/cli/command.ts'
import { invited } from '../../src/cli/people.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.resendInvite, {
  args: ['userId'],
  human: invited,
  examples: ['svc users resend ada@example.com\nA mail is on its way'],
})
