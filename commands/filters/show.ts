import { command } from '../../src/cli/command.ts'
import { formatFilter } from '../../src/cli/filters.ts'
import { filters } from '../../src/filters/contract.ts'

export default command(filters.show, {
  format: formatFilter,
  examples: [
    'svc filters show "Stale machines"\nId:          0197c1c9-51d2-7a40-9e13-6b7c8d9e0f11\nName:        Stale machines\nWhere:       lastSeenAt not within 30 days',
    'svc filters show "Stale machines" --json --jq .conditions > stale.json',
  ],
})
