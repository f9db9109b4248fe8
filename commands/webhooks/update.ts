import { command } from '../../src/cli/command.ts'
import { headerFlags } from '../../src/cli/webhooks/header-flags.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.update, {
  customFlags: headerFlags,
  description:
    'The given events and headers replace the present ones. After a change of the secret the previous one also signs for 24 hours.',
  examples: [
    "svc webhooks update 'Ticket system' --event '*' -q\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a",
    'svc webhooks update "Ticket system" --to https://hooks.example.com/v2 --secret @secret.txt',
  ],
})
