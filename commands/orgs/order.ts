import { command } from '../../src/cli/command.ts'
import { orgs } from '../../src/tenancy/contract.ts'

export default command(orgs.order, {
  args: ['organizationOrder'],
  description:
    'For users of a partner. Organizations that are not named follow in the order of their creation.',
  format: ({ organizationOrder }) => `${(organizationOrder as string[]).join('\n')}\n`,
  examples: [
    'svc orgs order green-garage blue-bakery\n0197c1c4-9b20-7aa1-8e3d-1d2e3f4a5b66\n0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'By name\nsvc orgs order $(svc orgs -q)',
  ],
})
