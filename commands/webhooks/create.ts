import { command } from '../../src/cli/command.ts'
import { headerFlags } from '../../src/cli/webhooks/header-flags.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.create, {
  customFlags: headerFlags,
  secret: 'secret',
  secretReplacedBy: 'svc webhooks rotate-secret',
  existing: { list: webhooks.list, within: ['orgId'] },
  description:
    'Without --secret one is generated, and displayed only once, alone on standard output. svc webhooks listen receives deliveries on this machine.',
  examples: [
    'svc webhooks create --org blue-bakery --name "Ticket system" --to https://hooks.example.com/devices --event alert.triggered 2>/dev/null\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    'svc webhooks create --org blue-bakery --name "Ticket system" --to https://hooks.example.com/devices --event device.enrolled,alert.triggered --secret @secret.txt -q\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a',
    "svc webhooks create --name SIEM --to https://siem.example.com/in --event '*' --header 'Authorization: @token.txt'",
  ],
})
