import { command } from '../../src/cli/command.ts'
import { formatWindow, maintenanceFlags } from '../../src/cli/maintenance-flags.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.maintenance, {
  customFlags: maintenanceFlags,
  format: ({ hostname, status, maintenanceUntil: until, ...device }) =>
    (status === 'maintenance'
      ? `${String(hostname)} is in maintenance until ${until === null ? 'it is ended' : String(until)}\n`
      : `${String(hostname)} is ${String(status)}\n`) + formatWindow(device),
  description:
    'A device in maintenance still reports, is offered no update, and never becomes offline. With --every its agent is updated only in a window that recurs, by rollouts and promotions alike; it replaces the window of its organization, and changes neither status nor alerts.',
  examples: [
    'svc devices maintenance reception-1 --hours 4\nreception-1 is in maintenance until 2026-01-31T16:00:00.000Z',
    'svc devices maintenance reception-1 --off\nreception-1 is online',
    'svc devices maintenance reception-1 --every "Sun 02:00" --for 2h --timezone Europe/Paris\nreception-1 is online\nMaintenance window: Sun 02:00 for 2h, Europe/Paris; next from 2026-02-01T01:00:00.000Z to 2026-02-01T03:00:00.000Z',
    'svc devices maintenance reception-1 --none',
  ],
})
