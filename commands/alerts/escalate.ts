import { alerts } from '../../src/alerts/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(alerts.escalate, {
  description:
    'The status does not change. An alert can be escalated repeatedly; the audit log records each time.',
  examples: [
    'svc alerts escalate "Backup failed"',
    'svc alerts escalate 0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a -q\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a',
  ],
})
