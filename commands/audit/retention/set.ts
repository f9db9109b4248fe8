import { auditRetention } from '../../../src/audit/retention/contract.ts'
import { formatRetention } from '../../../src/cli/audit-retention.ts'
import { command } from '../../../src/cli/command.ts'

export default command(auditRetention.change, {
  description:
    'What is left out stays as it is. With --archive nothing is deleted before the object storage of the service has confirmed that it holds it; with --no-archive old entries are gone.',
  format: formatRetention,
  examples: [
    'svc audit retention set --org blue-bakery --days 730 --archive\nKept:     730 days\nArchive:  yes\nHold:     no\nDeleted:  nothing yet\nLast run: never',
    'svc audit retention set --days 90 --dry-run',
  ],
})
