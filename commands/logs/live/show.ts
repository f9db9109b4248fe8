import { command } from '../../../src/cli/command.ts'
import { deviceLogs, liveLogs } from '../../../src/live/contract.ts'

export default command(liveLogs.show, {
  also: [deviceLogs.show],
  examples: [
    'svc logs live show web-1 system\nName:             System\nDisplay name:     The whole journal\nRecord count:     48211\nMax size:         -\nRetention days:   -\nLast write time:  2026-01-31T12:00:00.000Z',
    'svc logs live show web-1 ssh.service --json',
  ],
})
