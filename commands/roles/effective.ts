import { command } from '../../src/cli/command.ts'
import { formatEffective } from '../../src/cli/roles.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.effective, {
  format: formatEffective,
  examples: [
    'svc roles effective "Night Shift Lead"\nNight Shift Lead\n├─ alerts:write\n└─ inherits from Night Shift\n   ├─ devices:execute\n   └─ devices:read',
    'svc roles effective "Night Shift Lead" --json',
  ],
})
