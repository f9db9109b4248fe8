import { auditRetention } from '../../../src/audit/retention/contract.ts'
import { formatRetention } from '../../../src/cli/audit-retention.ts'
import { command } from '../../../src/cli/command.ts'

export default command(auditRetention.show, {
  format: formatRetention,
  examples: [
    'svc audit retention --org blue-bakery\nKept:     365 days\nArchive:  yes, 12 objects up to entry 48211\nHold:     no\nDeleted:  48 211 entries, up to entry 48211\nLast run: 2026-01-31T12:00:00.000Z',
    'svc audit retention --org blue-bakery --due --json --jq .due.entries\n97',
  ],
})
