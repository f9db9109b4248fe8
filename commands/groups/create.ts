import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.create, {
  existing: { list: deviceGroups.list, within: ['orgId'] },
  description:
    'A static group has the devices that people add. A dynamic one has those that match its saved filter, which is evaluated immediately and every minute.',
  examples: [
    'svc groups create --org blue-bakery --name Reception -q\n0197c1f4-2c61-7d83-a1f4-9b8c7d6e5f40',
    'svc groups create --name "Old Windows" --type dynamic --filter "Silent Windows machines"',
    'svc groups create --name Reception --org blue-bakery --site "Main Office" --if-not-exists',
  ],
})
