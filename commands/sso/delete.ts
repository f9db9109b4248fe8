import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'
import { ssoIdentities } from '../../src/sso/identities/contract.ts'

export default command(ssoProviders.remove, {
  ends: {
    entry: ssoIdentities.list,
    query: { limit: '1' },
    counts: ({ pagination }) => ({ identities: (pagination as { total: number }).total }),
  },
  format: () => 'Deleted, with its linked identities\n',
  description: 'Accounts that it created stay; svc users lists them.',
  examples: [
    'svc sso delete Okta --yes\nDeleted, with its linked identities',
    'svc sso delete Okta --dry-run\nDELETE https://svc.example.com/api/v1/sso/providers/0197c1f9-5a21-7c40-9e13-8b7a6c5d4e3f',
  ],
})
