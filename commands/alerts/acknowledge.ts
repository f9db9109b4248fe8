import { alerts } from '../../src/alerts/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(alerts.acknowledge, {
  description: 'The alert has to be active, so only one person can acknowledge it.',
  examples: [
    'svc alerts acknowledge "Backup failed"',
    'svc alerts acknowledge 0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a -q\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a',
  ],
})
