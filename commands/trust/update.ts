import { command } from '../../src/cli/command.ts'
import { claimFlags } from '../../src/cli/trust.ts'
import { trustPolicies } from '../../src/trust/contract.ts'

export default command(trustPolicies.update, {
  customFlags: claimFlags(false),
  description:
    'Jobs that signed in with it are signed out. The given claims and permissions replace the present ones.',
  examples: [
    'svc trust update Releases --status inactive -q\n0197c1fb-3c52-7a10-8d24-6e5f4a3b2c1d',
    'svc trust update Releases --claim repository_id=74291847 --claim ref=refs/heads/main --max-ttl-minutes 15',
  ],
})
