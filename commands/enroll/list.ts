import { command } from '../../src/cli/command.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'

export default command(enrollmentKeys.list, {
  columns: ['id', 'name', 'usageCount', 'maxUsage', 'expiresAt', 'orgId'],
  examples: [
    'svc enroll --org blue-bakery\nID                                    NAME        USAGE COUNT  MAX USAGE  EXPIRES AT                ORG ID\n0197c1c6-11d0-7f3c-8e44-9a2b7c6d5e33  Front desk  2            5          2026-02-01T12:00:00.000Z  0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'Expired keys\nsvc enroll --expired',
    'Those that stop working within a day\nsvc enroll --expiring-within 1d',
  ],
})
