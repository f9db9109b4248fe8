import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.setStatus, {
  preset: { status: 'active' },
  format: ({ name }) => `${String(name)} is active: people of the organization sign in with it\n`,
  summary: 'Let people sign in with an SSO provider',
  description:
    'It has to be complete; what is missing is named. From then on it vouches for members who may do no more than you; of others a warning tells.',
  examples: [
    'svc sso activate Okta\nOkta is active: people of the organization sign in with it',
    'svc sso activate Google\nGoogle is active: people of the organization sign in with it\nWarning: One member holds permissions that whoever configured it did not: they cannot sign in with it until somebody who holds them activates it',
    'svc sso activate "Entra ID"\nError: provider.certificate: expired at 2026-01-31T12:00:00.000Z',
  ],
})
