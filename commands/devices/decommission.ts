import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.decommission, {
  warning: 'Its agent is refused from now on, until svc devices restore',
  format: ({ hostname }) => `${String(hostname)} is decommissioned\n`,
  description: 'The record stays: svc devices restore undoes this, svc devices delete removes the record.',
  examples: ['svc devices decommission reception-1 --yes\nreception-1 is decommissioned'],
})
