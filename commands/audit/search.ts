import { auditLogs } from '../../src/audit/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(auditLogs.search, {
  args: ['q'],
  columns: ['timestamp', 'user.email', 'action', 'resource.type', 'resource.name', 'result', 'id'],
  secondary: ['resource.type', 'id'],
  examples: [
    'svc audit search "Front desk" --columns timestamp,action\nTIMESTAMP                 ACTION\n2026-01-31T12:00:00.000Z  enrollment_key.create',
    'svc audit search denied --all --csv',
  ],
})
