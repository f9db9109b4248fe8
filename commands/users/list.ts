import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.list, {
  columns: ['id', 'email', 'name', 'status', 'roleName', 'mfaEnabled', 'lastLoginAt'],
  secondary: ['roleName', 'id', 'mfaEnabled'],
  examples: [
    'svc users --org blue-bakery\nID                                    EMAIL            NAME          STATUS  ROLE NAME  MFA ENABLED  LAST LOGIN AT\n0197c1d0-2b11-7a44-9f10-5d3c7e8a9b22  ada@example.com  Ada Lovelace  active  Org Admin  yes          2026-01-31T12:00:00.000Z',
    'Pending invitations\nsvc users --status invited',
    'svc users --search lovelace -q',
  ],
})
