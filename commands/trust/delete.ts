import { command } from '../../src/cli/command.ts'
import { trustPolicies } from '../../src/trust/contract.ts'

export default command(trustPolicies.remove, {
  format: () => 'Deleted: no job can sign in with it any more\n',
  description: 'Enrollment keys that its jobs created stay; svc enroll lists them.',
  examples: [
    'svc trust delete Releases --yes\nDeleted: no job can sign in with it any more',
    'svc trust delete Releases --dry-run\nDELETE https://svc.example.com/api/v1/trust/policies/0197c1fb-3c52-7a10-8d24-6e5f4a3b2c1d',
  ],
})
