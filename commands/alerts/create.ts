import { alerts } from '../../src/alerts/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(alerts.create, {
  existing: { list: alerts.list, within: ['orgId', 'deviceId'], query: { status: 'active' } },
  description:
    'Without --device it is about the complete organization. --if-not-exists raises it only if no active alert has the same title.',
  examples: [
    'svc alerts create --org blue-bakery --device reception-1 --severity high --title "Backup failed" -q\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a',
    'svc alerts create --org blue-bakery --severity info --title "New office" --details \'{"floor": 2}\'',
  ],
})
