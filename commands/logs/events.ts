import { command } from '../../src/cli/command.ts'
import { eventLogs } from '../../src/logs/events/contract.ts'

export default command(eventLogs.list, {
  columns: ['timestamp', 'level', 'category', 'source', 'message'],
  examples: [
    'svc logs events reception-1 --level error --since 7d\nTIMESTAMP                 LEVEL  CATEGORY  SOURCE  MESSAGE\n2026-01-31T12:00:00.000Z  error  hardware  kernel  nvme0: I/O error',
    'svc logs events reception-1 --category security --all --csv > security.csv',
  ],
})
