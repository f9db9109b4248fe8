import { alerts } from '../../src/alerts/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(alerts.acknowledge, {
  description: 'Only one person gets to: it has to be active.',
  examples: [
    'svc alerts acknowledge "Backup failed"',
    'svc alerts acknowledge 0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a -q\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a',
  ],
})
