import { command } from '../../src/cli/command.ts'
import { effectiveTree } from '../../src/cli/roles.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.effective, {
  human: effectiveTree,
  examples: [
    'svc roles effective "Night Shift Lead"\nNight Shift Lead\n├─ alerts:write\n└─ inherits from Night Shift\n   ├─ devices:execute\n   └─ devices:read',
    'svc roles effective "Night Shift Lead" --json',
  ],
})
