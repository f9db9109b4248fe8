import { command } from '../src/cli/command.ts'
import { search } from '../src/search/contract.ts'

export default command(search.everything, {
  args: ['q'],
  columns: ['type', 'title', 'description', 'id'],
  examples: [
    'svc search "front desk"\nTYPE     TITLE         DESCRIPTION         ID\ndevices  Front desk    pc-17 · online      0197c1c4-9e21-7d10-b6a4-3c2f1e0d9b8a',
  ],
})
