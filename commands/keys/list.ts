import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.list, {
  columns: ['id', 'name', 'keyPrefix', 'scopes', 'status', 'expiresAt', 'usageCount', 'lastUsedAt', 'orgId'],
  secondary: ['usageCount', 'keyPrefix'],
  examples: [
    'svc keys --org blue-bakery\nID                                    NAME  KEY PREFIX    SCOPES        STATUS  EXPIRES AT                USAGE COUNT  LAST USED AT              ORG ID\n0197c1c8-3a72-7b0c-8d21-4e6a8c0e2f55  ci    svc_Hq3vT9xA  devices:read  active  2026-02-28T12:00:00.000Z  412          2026-01-31T12:00:00.000Z  0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'Expired keys\nsvc keys --status expired',
    'What has to be rotated this month\nsvc keys --expiring-within 30d -q',
  ],
})
