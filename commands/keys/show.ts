import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.show, {
  examples: [
    'svc keys show ci\nId:            0197c1c8-3a72-7b0c-8d21-4e6a8c0e2f55\nOrg id:        0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nName:          ci\nKey prefix:    svc_Hq3vT9xA\nRate limit:    1000\nStatus:        active\nUsage count:   412\n\nScopes\n  devices:read',
    'svc keys show ci --json',
  ],
})
