import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

const others = ['displayName', 'tags', 'addTags', 'removeTags', 'customFields', 'deviceRole']

export default command(devices.update, {
  summary: 'Move a device to another site of its organization',
  args: ['siteId'],
  preset: Object.fromEntries(others.map((key) => [key, undefined])),
  format: ({ hostname }) => `${String(hostname)} moved\n`,
  description: 'With null as site the device belongs to no site.',
  examples: [
    'svc devices move reception-1 "Main Office"\nreception-1 moved',
    'svc devices move reception-1 null',
  ],
})
