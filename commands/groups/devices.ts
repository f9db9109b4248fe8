import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.devices, {
  columns: ['id', 'hostname', 'displayName', 'osType', 'status', 'isPinned', 'addedBy'],
  examples: [
    'svc groups devices Reception --columns id,hostname,status\nID                                    HOSTNAME     STATUS\n0197c1d5-1e9a-7f63-a8c0-7b2d4e6f8a90  reception-1  online',
    'svc groups devices Reception --all -q',
  ],
})
