import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.update, {
  description: 'The key itself does not change. The given scopes replace the present ones.',
  examples: [
    'svc keys update ci --scope devices:read,alerts:read',
    'svc keys update ci --name nightly --rate-limit 200',
  ],
})
