import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.unpin, {
  warning: 'The filter decides from now on whether it is in the group',
  description: 'It leaves the group at once if the filter does not match it.',
  examples: [
    'svc groups unpin "Old Windows" reception-1 --yes\nreception-1 left Old Windows: the filter does not match it',
    'svc groups unpin "Old Windows" reception-1 --dry-run',
  ],
})
