import { command } from '../../src/cli/command.ts'
import { trustPolicies } from '../../src/trust/contract.ts'

export default command(trustPolicies.list, {
  columns: ['id', 'name', 'status', 'issuer', 'claims', 'permissions', 'lastUsedAt'],
  description: 'Oldest first: of several that match a token the first applies, unless the job names one.',
  examples: [
    'svc trust --org blue-bakery --columns id,name,status\nID                                    NAME      STATUS\n0197c1fb-3c52-7a10-8d24-6e5f4a3b2c1d  Releases  active',
    'svc trust --all -o ndjson',
  ],
})
