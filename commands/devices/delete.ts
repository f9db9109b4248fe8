import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.remove, {
  description: 'The device has to be decommissioned first. Its audit entries stay.',
  examples: ['svc devices delete reception-1 --yes\nDevice reception-1 deleted'],
})
