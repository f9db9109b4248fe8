import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.list, {
  columns: ['id', 'name', 'type', 'deviceCount', 'siteId', 'orgId'],
  examples: [
    'svc groups --org blue-bakery --columns id,name,type,deviceCount\nID                                    NAME       TYPE    DEVICE COUNT\n0197c1f4-2c61-7d83-a1f4-9b8c7d6e5f40  Reception  static  4',
    'svc groups --type dynamic --all --csv',
  ],
})
