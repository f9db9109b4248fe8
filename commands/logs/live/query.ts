import { command } from '../../../src/cli/command.ts'
import { deviceLogs, liveLogs } from '../../../src/live/contract.ts'

export default command(liveLogs.events, {
  also: [deviceLogs.events],
  columns: ['recordId', 'timeCreated', 'level', 'source', 'message'],
  description: 'Queries the connected agent, for up to 30 s. At most the latest 10000 matches are counted.',
  examples: [
    'svc logs live query web-1 System --level error --since 1h\nRECORD ID         TIME CREATED              LEVEL  SOURCE  MESSAGE\n1769860800000000  2026-01-31T12:00:00.000Z  error  kernel  nvme0: I/O error',
    'svc logs live query web-1 ssh.service --source sshd --limit 100 -o ndjson',
    'svc logs live query web-1 Auth --since 2026-01-31T08:00:00Z --until 2026-01-31T09:00:00Z --all --csv > auth.csv',
  ],
})
