import { command } from '../../src/cli/command.ts'
import { trialFlags, tryLogin } from '../../src/cli/sso-trial.ts'
import { ssoProviders } from '../../src/sso/contract.ts'
import { ssoTrials } from '../../src/sso/trials/contract.ts'

export default command(ssoProviders.test, {
  also: [ssoTrials.begin, ssoTrials.show],
  summary: 'Discover the endpoints of an OpenID Connect provider and check them; or try a sign-in',
  description:
    'Changes nothing. When it fails, the hint has the remedy. With --login, also for SAML and inactive providers, you sign in at the provider in a browser, and every step is printed: exits with 0 when the sign-in would be accepted and 1 when not.',
  alternative: { flag: 'login', flags: trialFlags, run: tryLogin },
  examples: [
    'svc sso test Okta\nProvider configuration is valid',
    'svc sso test Okta --jq .discovery.tokenEndpoint\nhttps://blue-bakery.okta.com/oauth2/v1/token',
    'svc sso test Auth0\nError: OIDC discovery failed: the issuer calls itself "https://blue-bakery.auth0.com/"\nHint: the issuer has to be what it calls itself, to the letter: https://blue-bakery.auth0.com/',
    'svc sso test Okta --login\nYour browser was opened at\n  https://svc.example.com/api/v1/sso/login/0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11?test=…\nWaiting for the sign-in there, for 10 minutes at most; Ctrl-C ends\n✗ The identity provider does not accept the client id and secret\n    401 invalid_client\n    Code: sso_client_rejected\n    Hint: Copy both again, without spaces around them; a secret may have expired: svc sso update PROVIDER --client-id … --client-secret -.\nThe sign-in does not work',
    'svc sso test Okta --login --no-browser --jq .status\npassed',
  ],
})
