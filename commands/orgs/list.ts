import { command } from '../../src/cli/command.ts'
import { orgs } from '../../src/tenancy/contract.ts'

export default command(orgs.list, {
  filteredEntry: orgs.page,
  columns: ['id', 'slug', 'name', 'type', 'status'],
  secondary: ['type'],
  examples: [
    'svc orgs\nID                                    SLUG         NAME         TYPE      STATUS\n0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11  blue-bakery  Blue Bakery  customer  active',
    'svc orgs --columns slug,maxDevices --csv --no-header\nblue-bakery,25',
    'svc orgs -q\n0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
  ],
})
