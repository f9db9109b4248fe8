import { command } from '../../src/cli/command.ts'
import { users } from '../../src/identity/contract.ts'

export default command(users.change, {
  summary: 'Disable a user and revoke their sessions',
  preset: { status: 'disabled', name: undefined },
  description: 'A user of other tenants is disabled in this one only. svc users enable undoes this.',
  examples: ['svc users disable ada@example.com -q\n0197c1d0-2b11-7a44-9f10-5d3c7e8a9b22'],
})
