import { auditLogs } from '../../src/audit/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(auditLogs.show, {
  examples: [
    'svc audit show 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55\nId:             0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55\nTimestamp:      2026-01-31T12:00:00.000Z\nAction:         enrollment_key.create\nResult:         success\nSeq:            17',
    'svc audit show 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55 --json',
  ],
})
