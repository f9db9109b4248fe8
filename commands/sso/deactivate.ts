import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.setStatus, {
  preset: { status: 'inactive' },
  format: ({ name }) => `${String(name)} is inactive: nobody signs in with it\n`,
  summary: 'Stop sign-ins with an SSO provider',
  examples: ['svc sso deactivate Okta\nOkta is inactive: nobody signs in with it'],
})
