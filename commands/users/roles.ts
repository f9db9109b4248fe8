import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.roles, {
  columns: ['id', 'name', 'scope', 'isSystem'],
  examples: [
    'svc users roles --org blue-bakery\nID                                    NAME       SCOPE         IS SYSTEM\n00000000-0000-7000-8000-000000000004  Org Admin  organization  yes',
  ],
})
