import { auditRetention } from '../../../src/audit/retention/contract.ts'
import { formatRetention } from '../../../src/cli/audit-retention.ts'
import { command } from '../../../src/cli/command.ts'

export default command(auditRetention.change, {
  description:
    'Settings that are not given do not change. With --archive entries are deleted only after the object storage of the service has confirmed that it stored them; with --no-archive they are deleted without a copy.',
  format: formatRetention,
  examples: [
    'svc audit retention set --org blue-bakery --days 730 --archive\nKept:     730 days\nArchive:  yes\nHold:     no\nDeleted:  nothing yet\nLast run: never',
    'svc audit retention set --days 90 --dry-run',
  ],
})
