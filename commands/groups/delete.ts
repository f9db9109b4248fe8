import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.remove, {
  ends: {
    entry: deviceGroups.show,
    counts: ({ deviceCount }) => ({ groupMembers: deviceCount as number }),
  },
  description:
    'Its devices are not deleted. Refused while users are limited to the group, or it has subgroups.',
  examples: [
    'svc groups delete Reception --yes\nDevice group deleted',
    'svc groups delete Reception --dry-run\nDELETE https://svc.example.com/api/v1/device-groups/0197c1f4-2c61-7d83-a1f4-9b8c7d6e5f40',
  ],
})
