import { command } from '../../src/cli/command.ts'
import { claimFlags } from '../../src/cli/trust.ts'
import { trustPolicies } from '../../src/trust/contract.ts'

export default command(trustPolicies.create, {
  customFlags: claimFlags(true),
  mints: { flag: 'permission', by: 'workload' },
  existing: { list: trustPolicies.list, within: ['orgId'] },
  description:
    'A job signs in with svc login --oidc. For GitHub and GitLab the claims have to include an id: names can be changed, and taken over. Needs a second factor. svc-trust(7) has complete examples.',
  examples: [
    'svc trust create --org blue-bakery --name Releases --issuer https://token.actions.githubusercontent.com --claim repository_id=74291847 --claim environment=production --permission organizations:read,organizations:write -q\n0197c1fb-3c52-7a10-8d24-6e5f4a3b2c1d',
    'svc trust create --name Tills --issuer https://gitlab.com --claim project_id=20 --claim ref=main --permission organizations:write --max-usage 5 --max-ttl-minutes 15',
  ],
})
