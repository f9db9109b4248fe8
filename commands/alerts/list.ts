import { alerts } from '../../src/alerts/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(alerts.list, {
  columns: ['id', 'severity', 'status', 'title', 'triggeredAt', 'deviceId', 'orgId'],
  examples: [
    'svc alerts --org blue-bakery --status active --columns id,severity,title\nID                                    SEVERITY  TITLE\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a  high      Backup failed',
    'svc alerts --device reception-1 --since 2026-01-31T00:00:00Z --all -o ndjson',
  ],
})
