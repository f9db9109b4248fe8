import { command } from '../../src/cli/command.ts'
import { formatInvited } from '../../src/cli/invitations.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.invite, {
  args: ['email'],
  format: formatInvited,
  description: 'Who has an account already is added, and told to sign in.',
  examples: [
    'svc users invite ada@example.com --name "Ada Lovelace" --role "Org Admin" --org blue-bakery\nada@example.com is invited. A mail is on its way',
    'Only one site\nsvc users invite bob@example.com --name Bob --role "Org Viewer" --site-ids "Main Office"',
    'Into a partner, with every organization\nsvc users invite eve@example.com --name Eve --role "Partner Technician" --org-access all',
  ],
})
