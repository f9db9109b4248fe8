import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.update, {
  description: 'The key itself stays. The scopes that are given take the place of those there were.',
  examples: [
    'svc keys update ci --scope devices:read,alerts:read',
    'svc keys update ci --name nightly --rate-limit 200',
  ],
})
