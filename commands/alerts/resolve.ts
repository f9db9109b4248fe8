import { alerts } from '../../src/alerts/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(alerts.resolve, {
  examples: [
    'svc alerts resolve "Backup failed" --note "Disk replaced"',
    'svc alerts resolve 0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a -q\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a',
  ],
})
