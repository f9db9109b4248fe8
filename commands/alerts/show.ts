import { alerts } from '../../src/alerts/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(alerts.show, {
  examples: [
    'svc alerts show 0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a\nId:               0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a\nOrg id:           0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nStatus:           active\nSeverity:         high\nTitle:            Backup failed',
    'svc alerts show "Backup failed" --json',
  ],
})
