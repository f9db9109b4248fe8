import { command } from '../../src/cli/command.ts'
import { ssoIdentities } from '../../src/sso/identities/contract.ts'

export default command(ssoIdentities.unlink, {
  warning: 'Sessions of this link end',
  format: () => 'Link removed: at the next sign-in they are found by their e-mail address\n',
  description:
    'For somebody with a new identifier at the provider. The account stays; sessions of the link are revoked.',
  examples: [
    'svc sso unlink Okta 0197c1fa-6b32-7d51-8f24-9c8b7d6e5f40 --yes\nLink removed: at the next sign-in they are found by their e-mail address',
    'svc sso unlink Okta 0197c1fa-6b32-7d51-8f24-9c8b7d6e5f40 --dry-run\nDELETE https://svc.example.com/api/v1/sso/providers/0197c1f9-5a21-7c40-9e13-8b7a6c5d4e3f/identities/0197c1fa-6b32-7d51-8f24-9c8b7d6e5f40',
  ],
})
