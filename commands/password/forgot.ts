import { command } from '../../src/cli/command.ts'
import { auth } from '../../src/identity/contract.ts'

export default command(auth.forgotPassword, {
  args: ['email'],
  description: 'The link in the mail is taken by svc password reset, or by the page it leads to.',
  examples: ['svc password forgot ada@example.com\nIf this email exists, a reset link will be sent.'],
})
