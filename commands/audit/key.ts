import { auditCheckpoints } from '../../src/audit/checkpoints/contract.ts'
import { command } from '../../src/cli/command.ts'

type Key = { verifier: string }

export default command(auditCheckpoints.key, {
  summary: 'Print the public keys that sign an audit chain, a line each',
  description:
    'The current key first, then earlier ones. Store the lines apart from the service: an auditor trusts these keys.',
  examples: [
    'svc audit key --org blue-bakery | tee audit.pub\nsvc/audit/0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55+2e1a3257+AQjB0rW7kR6vNn0gQ3o2bq5Jx9m8Zt4cYpW1sHuLdEfK',
    'svc audit key --jq .current.publicKey\nCMHStbuRHq82fSBDejZurknH2bxm3hxilbWwe4t0R8o=',
  ],
  format: ({ current, former }) =>
    [current as Key, ...(former as Key[])].map(({ verifier }) => `${verifier}\n`).join(''),
})
