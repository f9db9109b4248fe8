import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.show, {
  examples: [
    'svc devices show reception-1\nId:                       0197c1c7-2e61-7a9b-9c10-3d5f7b9e1f44\nHostname:                 reception-1\nStatus:                   online\n\nTags\n  front\n\nHardware\n  CPU model:               Example 9\n  CPU cores:               8\n\nDisks\n  MOUNT POINT  DEVICE     FS TYPE  TOTAL GB  USED GB\n  /            /dev/sda1  ext4     250       61',
    'svc devices show reception-1 --json',
  ],
})
