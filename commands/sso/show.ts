import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.show, {
  examples: [
    'svc sso show Okta\nId:                0197c1f9-5a21-7c40-9e13-8b7a6c5d4e3f\nOrg id:            0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nName:              Okta\nType:              oidc\nStatus:            active',
    'svc sso show Okta --jq .data.attributeMapping',
  ],
})
