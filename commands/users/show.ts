import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.show, {
  examples: [
    'svc users show ada@example.com\nId:              0197c1d0-2b11-7a44-9f10-5d3c7e8a9b22\nEmail:           ada@example.com\nName:            Ada Lovelace\nStatus:          active',
    'svc users show ada@example.com --json',
  ],
})
