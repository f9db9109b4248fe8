import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.test, {
  summary: 'Ask the issuer of an OpenID Connect provider for its endpoints, and check them',
  description: 'Nothing changes. When it fails, the hint says what mends it.',
  examples: [
    'svc sso test Okta\nProvider configuration is valid',
    'svc sso test Okta --jq .discovery.tokenEndpoint\nhttps://blue-bakery.okta.com/oauth2/v1/token',
    'svc sso test Auth0\nError: OIDC discovery failed: the issuer calls itself "https://blue-bakery.auth0.com/"\nHint: the issuer has to be what it calls itself, to the letter: https://blue-bakery.auth0.com/',
  ],
})
