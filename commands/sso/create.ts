import { command } from '../../src/cli/command.ts'
import { promptForProvider } from '../../src/cli/sso-prompts.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.create, {
  file: true,
  prompt: promptForProvider,
  existing: { list: ssoProviders.list, within: ['orgId'] },
  description:
    'It is inactive until svc sso activate. The endpoints are discovered from the issuer; if that fails, the provider is still created. On a terminal missing settings are prompted for. Needs a second factor.',
  examples: [
    'svc sso create --org blue-bakery\nKind of provider Okta, OpenID Connect\nIssuer, such as https://{domain}.okta.com https://blue-bakery.okta.com\nClient id of the provider 0oa1b2c3\nClient secret ********\nWhat people know it as Okta',
    'svc sso create --org blue-bakery --name Okta --preset okta --issuer https://blue-bakery.okta.com --client-id 0oa1b2c3 --client-secret @secret.txt -q\n0197c1f9-5a21-7c40-9e13-8b7a6c5d4e3f',
    'svc sso create --name "Entra ID" --preset azure-ad-saml --entity-id https://sts.windows.net/8c1d…/ --sso-url https://login.microsoftonline.com/8c1d…/saml2 --certificate entra.cer',
    'svc sso create --org blue-bakery --file provider.json --client-secret - < secret.txt',
  ],
})
