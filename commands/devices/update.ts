import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.update, {
  description: 'Fields that are not given do not change. Custom fields are merged; null removes one.',
  examples: [
    'svc devices update reception-1 --display-name "Front desk" --add-tag pos --remove-tag spare -q\n0197c1c7-2e61-7a9b-9c10-3d5f7b9e1f44',
    `svc devices update reception-1 --custom-fields '{"rack": "4", "owner": null}'`,
    'Use the role that the agent reports again\nsvc devices update reception-1 --device-role null',
  ],
})
