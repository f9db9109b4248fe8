import { auditRetention } from '../../../src/audit/retention/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(auditRetention.hold, {
  summary: 'Hold an audit log: no entry is deleted, however old it is',
  preset: { held: true },
  format: () => 'Held: nothing is deleted until svc audit hold release\n',
  examples: [
    'svc audit hold set --org blue-bakery --reason "Case 2026-117"\nHeld: nothing is deleted until svc audit hold release',
    'svc audit hold set --org blue-bakery --reason "Case 2026-117" --dry-run',
  ],
})
