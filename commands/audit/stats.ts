import { auditReports } from '../../src/audit/reports/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(auditReports.stats, {
  examples: [
    'svc audit stats --org blue-bakery --since 2026-01-01T00:00:00Z --jq ".byCategory[] | [.category, .count] | @tsv"\nauthentication\t812\nsystem\t97\ncompliance\t12',
    'svc audit stats --json',
  ],
})
