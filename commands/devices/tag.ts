import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.tag, {
  args: ['deviceIds'],
  format: ({ devices }) => `Tagged ${devices === 1 ? '1 device' : `${devices} devices`}\n`,
  description: 'All devices are changed in one transaction, or none.',
  examples: [
    'svc devices tag web-1 web-2 --add prod --remove old\nTagged 2 devices',
    'All offline devices\nsvc devices --status offline --all -q | xargs -n 1000 svc devices tag --add stale',
  ],
})
