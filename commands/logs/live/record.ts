import { command } from '../../../src/cli/command.ts'
import { deviceLogs, liveLogs } from '../../../src/live/contract.ts'

export default command(liveLogs.record, {
  also: [deviceLogs.record],
  examples: [
    'svc logs live record web-1 System 1769860800000000\nRecord id:     1769860800000000\nTime created:  2026-01-31T12:00:00.000Z\nLevel:         error\nSource:        kernel\nEvent id:      0\nMessage:       nvme0: I/O error',
    'svc logs live record web-1 System 1769860800000000 --jq .message\nnvme0: I/O error',
  ],
})
