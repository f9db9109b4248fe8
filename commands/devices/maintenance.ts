import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.maintenance, {
  negatedFlag: { field: 'enable', flag: 'off', description: 'End maintenance now' },
  format: ({ hostname, status, maintenanceUntil: until }) =>
    status === 'maintenance'
      ? `${String(hostname)} is in maintenance until ${until === null ? 'it is ended' : String(until)}\n`
      : `${String(hostname)} is ${String(status)}\n`,
  description: 'A device in maintenance still reports, and never becomes offline.',
  examples: [
    'svc devices maintenance reception-1 --hours 4\nreception-1 is in maintenance until 2026-01-31T16:00:00.000Z',
    'svc devices maintenance reception-1 --off\nreception-1 is online',
  ],
})
