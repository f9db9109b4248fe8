import { command } from '../../src/cli/command.ts'
import { partners } from '../../src/tenancy/contract.ts'

export default command(partners.update, {
  description:
    'suspended and churned permanently revoke the sessions and keys of the partner and all its organizations. active approves a pending partner.',
  examples: [
    'svc partners update acme --status active --jq .status\nactive',
    'svc partners update acme --plan pro --max-devices 500',
    'Remove the cap\nsvc partners update acme --max-organizations null',
    'svc partners update acme --timezone Europe/Paris --settings @settings.json --dry-run',
  ],
})
