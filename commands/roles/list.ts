import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.list, {
  columns: ['id', 'name', 'isSystem', 'forceMfa', 'parentRoleName', 'userCount'],
  examples: [
    'svc roles --org blue-bakery --columns name,isSystem,userCount\nNAME            IS SYSTEM  USER COUNT\nAuditor         true       1\nNight Shift     false      4\nOrg Admin       true       2\nOrg Technician  true       6\nOrg Viewer      true       3',
    'Of a partner, as system administrator\nsvc roles --partner acme',
  ],
})
