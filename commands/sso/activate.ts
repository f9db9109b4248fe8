import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.setStatus, {
  preset: { status: 'active' },
  format: ({ name }) => `${String(name)} is active: people of the organization sign in with it\n`,
  summary: 'Let people sign in with an SSO provider',
  description:
    'It has to be complete; missing settings are named. From then on it signs in members with no more permissions than you have; a warning counts the others.',
  examples: [
    'svc sso activate Okta\nOkta is active: people of the organization sign in with it',
    'svc sso activate Google\nGoogle is active: people of the organization sign in with it\nWarning: One member holds permissions that whoever configured it did not: they cannot sign in with it until somebody who holds them activates it',
    'svc sso activate "Entra ID"\nError: provider.certificate: expired at 2026-01-31T12:00:00.000Z',
  ],
})
