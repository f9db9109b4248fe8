import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.myInvitations, {
  columns: ['name', 'roleName', 'invitedAt', 'orgId', 'partnerId'],
  examples: [
    'svc invite list\nNAME         ROLE NAME   INVITED AT\nBlue Bakery  Org Viewer  2026-01-31T12:00:00.000Z',
  ],
})
