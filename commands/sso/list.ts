import { command } from '../../src/cli/command.ts'
import { ssoProviders } from '../../src/sso/contract.ts'

export default command(ssoProviders.list, {
  columns: ['id', 'name', 'type', 'status', 'enforceSSO', 'issuer', 'entityId'],
  description: 'Oldest first: people sign in with the first active one of their organization.',
  examples: [
    'svc sso --org blue-bakery --columns id,name,type,status\nID                                    NAME  TYPE  STATUS\n0197c1f9-5a21-7c40-9e13-8b7a6c5d4e3f  Okta  oidc  active',
    'svc sso --all -o ndjson',
  ],
})
