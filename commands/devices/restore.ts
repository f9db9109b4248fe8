import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.restore, {
  format: ({ hostname }) => `${String(hostname)} is restored\n`,
  description: 'It is offline until its agent reports again, and counts towards the device limits.',
  examples: ['svc devices restore reception-1\nreception-1 is restored'],
})
