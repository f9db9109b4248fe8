import { command } from '../../src/cli/command.ts'
import { partners } from '../../src/tenancy/contract.ts'

export default command(partners.remove, {
  description: 'Its organizations are deleted too, its machines are refused, and its slug can be used again.',
  examples: [
    'svc partners delete acme --yes\nPartner deleted successfully',
    'svc partners delete acme --dry-run\nThis ends 12 organizations, 340 devices, 2 API keys; the audit log is kept\nDELETE https://svc.example.com/api/v1/orgs/partners/0197c1c4-6f10-7b0a-8a52-5b1f6e0c9d01',
    'svc partners delete acme --yes --ignore-not-found',
  ],
})
