import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.setStatus, {
  preset: { status: 'inactive' },
  format: ({ name }) => `${String(name)} is inactive: nobody signs in with it\n`,
  summary: 'Let nobody sign in with an SSO provider any more',
  examples: ['svc sso deactivate Okta\nOkta is inactive: nobody signs in with it'],
})
