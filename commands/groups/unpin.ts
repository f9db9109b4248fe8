import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.unpin, {
  description: 'It leaves the group at once if the filter does not match it.',
  examples: [
    'svc groups unpin "Old Windows" reception-1 --yes\nreception-1 left Old Windows: the filter does not match it',
    'svc groups unpin "Old Windows" reception-1 --dry-run',
  ],
})
