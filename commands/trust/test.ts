import { command } from '../../src/cli/command.ts'
import { formatChecks, isAccepted } from '../../src/cli/trust.ts'
import { trustPolicies } from '../../src/trust/contract.ts'

export default command(trustPolicies.test, {
  format: formatChecks,
  isSuccess: isAccepted,
  description: 'The token is not consumed. Exits with 0 when a job can sign in with it and 1 when not.',
  examples: [
    'svc trust test Releases --id-token - < token.txt\nok      issuer                It is of https://token.actions.githubusercontent.com\nok      signature             It is signed with a key that the issuer publishes\nok      time                  It counts now\nok      use                   It was not used yet\nok      audience              It is for https://svc.example.com\nok      claims.repository_id  repository_id is "74291847"\nfailed  claims.environment    environment is "staging", and has to be "production"\nok      policy                It is active\nNo job signs in with it',
    'svc trust test Releases --id-token @token.txt --jq .claims',
  ],
})
