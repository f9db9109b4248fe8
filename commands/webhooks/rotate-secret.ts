import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.rotateSecret, {
  secret: 'secret',
  description:
    'The new secret is displayed only once, alone on standard output. For 24 hours deliveries are also signed with the previous one.',
  examples: [
    'svc webhooks rotate-secret "Ticket system" 2>/dev/null\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    'svc webhooks rotate-secret "Ticket system" --out-file secret.txt',
  ],
})
