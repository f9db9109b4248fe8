import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.show, {
  examples: [
    'svc groups show Reception\nId:            0197c1f4-2c61-7d83-a1f4-9b8c7d6e5f40\nOrg id:        0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nName:          Reception\nType:          static\nDevice count:  4',
    'svc groups show Reception --json',
  ],
})
