import { command } from '../../src/cli/command.ts'
import { formatInvited } from '../../src/cli/invitations.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.invite, {
  args: ['email'],
  existing: { list: users.list, within: ['orgId', 'partnerId'], by: 'email' },
  format: formatInvited,
  description: 'Somebody who has an account accepts the invitation with it: svc invite accept NAME.',
  examples: [
    'svc users invite ada@example.com --name "Ada Lovelace" --role "Org Admin" --org blue-bakery\nada@example.com is invited. A mail was sent',
    'Unless they are a member or invited already\nsvc users invite ada@example.com --name "Ada Lovelace" --role "Org Admin" --if-not-exists -q',
    'Only one site\nsvc users invite bob@example.com --name Bob --role "Org Viewer" --site "Main Office"',
    'Into a partner, with every organization\nsvc users invite eve@example.com --name Eve --role "Partner Technician" --org-access all',
  ],
})
