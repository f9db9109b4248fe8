import { command } from '../../src/cli/command.ts'
import { formatFilter } from '../../src/cli/filters.ts'
import { filters } from '../../src/filters/contract.ts'

export default command(filters.remove, {
  format: formatFilter,
  examples: [
    "svc filters delete 'Stale machines' --yes",
    "svc filters delete 'Stale machines' --yes --ignore-not-found",
  ],
})
