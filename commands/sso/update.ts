import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.update, {
  file: true,
  preset: { orgId: undefined },
  description:
    'With --issuer its endpoints are discovered again; with another issuer, known people are linked again at their next sign-in. --enforce-sso needs an administrator who signed in with it within 24 hours, or --force.',
  examples: [
    'svc sso update Okta --client-secret @secret.txt -q\n0197c1f9-5a21-7c40-9e13-8b7a6c5d4e3f',
    'svc sso update Okta --allowed-domains blue-bakery.example.com,bakery.example.org --default-role "Org Viewer"',
    'svc sso update Okta --enforce-sso',
  ],
})
