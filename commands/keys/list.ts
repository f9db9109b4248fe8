import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.list, {
  columns: ['id', 'name', 'keyPrefix', 'scopes', 'status', 'usageCount', 'lastUsedAt', 'orgId'],
  examples: [
    'svc keys --org blue-bakery\nID                                    NAME  KEY PREFIX    SCOPES        STATUS  USAGE COUNT  LAST USED AT              ORG ID\n0197c1c8-3a72-7b0c-8d21-4e6a8c0e2f55  ci    svc_Hq3vT9xA  devices:read  active  412          2026-01-31T12:00:00.000Z  0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'Expired keys\nsvc keys --status expired',
  ],
})
