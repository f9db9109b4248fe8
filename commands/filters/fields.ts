import { command } from '../../src/cli/command.ts'
import { filters } from '../../src/filters/contract.ts'

export default command(filters.fields, {
  columns: ['key', 'type', 'label', 'values'],
  examples: [
    'svc filters fields\nKEY          TYPE    LABEL         VALUES\nhostname     string  Hostname\ndisplayName  string  Display name',
    'svc filters fields --json --jq \'.data[] | select(.key == "tags") | .operators[]\'\nhasAny\nhasAll\nisEmpty\nisNotEmpty\ncontains',
  ],
})
