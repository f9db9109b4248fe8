import { command } from '../../../src/cli/command.ts'
import { liveLogs } from '../../../src/live/contract.ts'

export default command(liveLogs.list, {
  columns: ['name', 'displayName', 'recordCount', 'lastWriteTime'],
  description: 'Queries the connected agent. Linux: System, Kernel, Auth and each unit, or log files.',
  examples: [
    'svc logs live list web-1\nNAME         DISPLAY NAME              RECORD COUNT  LAST WRITE TIME\nSystem       The whole journal         48211         2026-01-31T12:00:00.000Z\nKernel       Messages of the kernel\nAuth         Sign-ins and authorization\nssh.service  ssh.service',
    "svc logs live list web-1 --jq '.data[].name'",
  ],
})
