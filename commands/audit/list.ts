import { auditLogs } from '../../src/audit/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(auditLogs.list, {
  also: [auditLogs.flat],
  columns: ['timestamp', 'user.email', 'action', 'resource.type', 'resource.name', 'result', 'id'],
  secondary: ['resource.type', 'id'],
  examples: [
    'svc audit --org blue-bakery --action enrollment_key\nTIMESTAMP                 USER EMAIL         ACTION                 RESOURCE TYPE   RESOURCE NAME  RESULT   ID\n2026-01-31T12:00:00.000Z  admin@example.com  enrollment_key.create  enrollment_key  Front desk     success  0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55',
    'svc audit --since 2026-01-01T00:00:00Z --all -o ndjson',
  ],
})
