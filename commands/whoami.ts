import { command } from '../src/cli/command.ts'
import { auth } from '../src/identity/contract.ts'

export default command(auth.me, {
  examples: [
    'svc whoami --columns user.email,scope --no-header\nadmin@example.com  system',
    'svc whoami --json',
    'svc whoami -q\n0197c1c3-5e44-7a1b-8c30-2d4e6f8a0b11',
  ],
})
