import { command } from '../../src/cli/command.ts'
import { DeviceChange, devices } from '../../src/devices/contract.ts'

const others = Object.keys(DeviceChange.shape).filter((field) => field !== 'siteId')

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
