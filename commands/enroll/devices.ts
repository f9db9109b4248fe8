import { command } from '../../src/cli/command.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'

export default command(enrollmentKeys.devices, {
  columns: ['id', 'hostname', 'osType', 'status', 'enrolledAt', 'enrollmentIp'],
  examples: [
    'svc enroll devices "Front desk"\nID                                    HOSTNAME     OS TYPE  STATUS  ENROLLED AT               ENROLLMENT IP\n0197c1c7-2e61-7a9b-9c10-3d5f7b9e1f44  reception-1  linux    online  2026-01-31T11:20:00.000Z  203.0.113.7',
    'svc enroll devices "Front desk" --all -q',
  ],
})
