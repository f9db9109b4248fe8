import { command } from '../../src/cli/command.ts'
import { scripts } from '../../src/scripts/contract.ts'

export default command(scripts.show, {
  examples: [
    'svc scripts show "Clear temporary files"\nId:               0197c1f0-5b3a-7c11-9e42-1a2b3c4d5e6f\nOrg id:           0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nName:             Clear temporary files',
    'svc scripts show "Clear temporary files" --jq .content > clear.sh',
  ],
})
