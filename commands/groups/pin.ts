import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.pin, {
  description: 'The device is added even if it does not match the filter.',
  examples: [
    'svc groups pin "Old Windows" reception-1',
    'svc groups pin "Old Windows" reception-1 -q\n0197c1d5-1e9a-7f63-a8c0-7b2d4e6f8a90',
  ],
})
