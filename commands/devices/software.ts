import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.software, {
  columns: ['name', 'version', 'publisher', 'installDate'],
  examples: [
    'svc devices software reception-1 --name ssl\nNAME     VERSION  PUBLISHER  INSTALL DATE\nopenssl  3.0.15   Debian     2026-01-12',
    'svc devices software reception-1 --all --csv > software.csv',
  ],
})
