import { command } from '../../src/cli/command.ts'
import { sites } from '../../src/tenancy/contract.ts'

export default command(sites.list, {
  columns: ['id', 'name', 'timezone', 'orgId'],
  examples: [
    'svc sites --org blue-bakery\nID                                    NAME         TIMEZONE      ORG ID\n0197c1c5-03b2-7d48-b1a9-4f6f0e7c8b22  Main Office  Europe/Paris  0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'svc sites --all --csv',
  ],
})
