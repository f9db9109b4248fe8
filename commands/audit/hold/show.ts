import type { AuditRetention } from '../../../src/audit/retention/contract.ts'
import { auditRetention } from '../../../src/audit/retention/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(auditRetention.show, {
  summary: 'Show whether an audit log is held, why, by whom and since when',
  preset: { due: undefined },
  format: (reply) => {
    const { hold } = reply as AuditRetention
    if (!hold) return 'Not held\n'
    return `Held: ${hold.reason}\nBy:   ${hold.userEmail ?? 'unknown'}\nSince ${hold.since}\n`
  },
  examples: [
    'svc audit hold --org blue-bakery\nHeld: Case 2026-117\nBy:   admin@example.com\nSince 2026-01-31T12:00:00.000Z',
    'svc audit hold show --org blue-bakery --json --jq .hold.reason\nCase 2026-117',
  ],
})
