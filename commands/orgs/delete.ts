import { command } from '../../src/cli/command.ts'
import { orgs } from '../../src/tenancy/contract.ts'

export default command(orgs.remove, {
  description: 'Its machines are refused, its keys and sessions are revoked, and its slug can be used again.',
  examples: [
    'svc orgs delete blue-bakery --yes\nOrganization deleted successfully',
    'svc orgs delete blue-bakery --dry-run\nThis ends 340 devices, 2 API keys; the audit log is kept\nDELETE https://svc.example.com/api/v1/orgs/organizations/0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'svc orgs delete blue-bakery --yes --ignore-not-found',
  ],
})
