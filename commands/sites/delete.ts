import { command } from '../../src/cli/command.ts'
import { sites } from '../../src/tenancy/contract.ts'

export default command(sites.remove, {
  description: 'Only a site without devices, enrollment keys and device groups.',
  examples: [
    'svc sites delete "Main Office" --org blue-bakery --yes\nSite deleted successfully',
    'svc sites delete "Main Office" --dry-run\nDELETE https://svc.example.com/api/v1/orgs/sites/0197c1c5-03b2-7d48-b1a9-4f6f0e7c8b22',
    'svc sites delete "Main Office" --yes --ignore-not-found',
  ],
})
