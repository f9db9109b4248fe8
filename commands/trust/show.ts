import { command } from '../../src/cli/command.ts'
import { trustPolicies } from '../../src/trust/contract.ts'

export default command(trustPolicies.show, {
  examples: [
    'svc trust show Releases\nId:               0197c1fb-3c52-7a10-8d24-6e5f4a3b2c1d\nOrg id:           0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nName:             Releases\nIssuer:           https://token.actions.githubusercontent.com',
    'svc trust show Releases --jq .data.claims',
  ],
})
