import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.me, {
  examples: [
    'svc profile\nId:          0197c1d0-2b11-7a44-9f10-5d3c7e8a9b22\nEmail:       ada@example.com\nName:        Ada Lovelace',
    'svc profile --jq .name',
  ],
})
