import { command } from '../../src/cli/command.ts'
import { conditionFieldFlags, formatFilter } from '../../src/cli/filters.ts'
import { filters } from '../../src/filters/contract.ts'

export default command(filters.update, {
  customFlags: conditionFieldFlags(false),
  format: formatFilter,
  examples: [
    "svc filters update 'Stale machines' --where 'lastSeenAt not within 60 days'",
    "svc filters update 'Stale machines' --name Stale --description null",
  ],
})
