import { command } from '../../src/cli/command.ts'
import { ssoIdentities } from '../../src/sso/identities/contract.ts'

export default command(ssoIdentities.list, {
  columns: ['id', 'email', 'externalId', 'lastLoginAt'],
  description: 'From the second sign-in on, a person is found by the identifier of the provider.',
  examples: [
    'svc sso identities Okta\nID                                    EMAIL                           EXTERNAL ID           LAST LOGIN AT\n0197c1fa-6b32-7d51-8f24-9c8b7d6e5f40  dora@blue-bakery.example.com    00u1a2b3c4D5e6F7g8h9  2026-01-31T11:20:00.000Z',
    'svc sso identities Okta --all --jq \'.[] | select(.email == "dora@blue-bakery.example.com").id\'',
  ],
})
