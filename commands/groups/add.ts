import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.add, {
  examples: [
    'svc groups add Reception --device reception-1 --device reception-2\nAdded 2 devices to Reception',
    'svc groups add Reception --device 0197c1d5-1e9a-7f63-a8c0-7b2d4e6f8a90 --json',
  ],
})
