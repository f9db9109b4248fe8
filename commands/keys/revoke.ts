import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.revoke, {
  warning: 'It stops working at once, and for good',
  description: 'The key stops working immediately and permanently; its record stays.',
  examples: [
    'svc keys revoke ci --yes\nAPI key revoked successfully',
    'svc keys revoke ci --dry-run\nDELETE https://svc.example.com/api/v1/api-keys/0197c1c8-3a72-7b0c-8d21-4e6a8c0e2f55',
  ],
})
