import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.take, {
  warning: 'The devices leave the group',
  examples: [
    'svc groups remove Reception --device reception-1 --yes\nRemoved 1 device from Reception',
    'svc groups remove Reception --device reception-1 --dry-run',
  ],
})
