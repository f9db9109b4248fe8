import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.remove, {
  description: 'Only a device that was decommissioned before. What the audit log says of it stays.',
  examples: ['svc devices delete reception-1 --yes\nDevice reception-1 deleted'],
})
