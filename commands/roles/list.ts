import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.list, {
  columns: ['id', 'name', 'isSystem', 'forceMfa', 'parentRoleName', 'userCount'],
  examples: [
    'svc roles --org blue-bakery --columns name,isSystem,userCount\nNAME            IS SYSTEM  USER COUNT\nAuditor         yes        1\nNight Shift     no         4\nOrg Admin       yes        2\nOrg Technician  yes        6\nOrg Viewer      yes        3',
    'Of a partner, as system administrator\nsvc roles --partner acme',
  ],
})
