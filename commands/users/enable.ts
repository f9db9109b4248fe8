import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.change, {
  summary: 'Enable a disabled user',
  preset: { status: 'active', name: undefined },
  examples: ['svc users enable ada@example.com -q\n0197c1d0-2b11-7a44-9f10-5d3c7e8a9b22'],
})
