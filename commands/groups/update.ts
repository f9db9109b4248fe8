import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.update, {
  description: 'The type and the site of a group cannot be changed.',
  examples: [
    'svc groups update Reception --name "Front desk"',
    'svc groups update "Old Windows" --filter "Windows machines unseen for a week"',
    'Remove it from its parent group\nsvc groups update Reception --parent null',
  ],
})
