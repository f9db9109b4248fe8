import { command } from '../../src/cli/command.ts'
import { auth } from '../../src/identity/contract.ts'

export default command(auth.forgotPassword, {
  args: ['email'],
  description: 'Use the link in the mail with svc password reset, or open it in a browser.',
  examples: ['svc password forgot ada@example.com\nIf this email exists, a reset link will be sent.'],
})
