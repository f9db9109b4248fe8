import { auditRetention } from '../../../src/audit/retention/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(auditRetention.hold, {
  summary: 'Release the hold of an audit log: retention deletes old entries again',
  preset: { held: false },
  format: () => 'Released: retention deletes old entries again\n',
  examples: [
    'svc audit hold release --org blue-bakery --reason "Case 2026-117 is closed"\nReleased: retention deletes old entries again',
    'svc audit hold release --org blue-bakery --dry-run',
  ],
})
