import { command } from '../../src/cli/command.ts'
import { diagnosticLogs } from '../../src/logs/diagnostic/contract.ts'

export default command(diagnosticLogs.list, {
  columns: ['timestamp', 'level', 'component', 'message'],
  examples: [
    'svc logs diagnostic reception-1 --level warn,error --since 1h\nTIMESTAMP                 LEVEL  COMPONENT  MESSAGE\n2026-01-31T12:00:00.000Z  warn   heartbeat  The service did not answer',
    'svc logs diagnostic reception-1 --search timeout --all -o ndjson',
  ],
})
