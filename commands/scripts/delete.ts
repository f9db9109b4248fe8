import { command } from '../../src/cli/command.ts'
import { scripts } from '../../src/scripts/contract.ts'

export default command(scripts.remove, {
  examples: [
    'svc scripts delete "Clear temporary files" --yes\nScript deleted',
    'svc scripts delete "Clear temporary files" --dry-run\nDELETE https://svc.example.com/api/v1/scripts/0197c1f0-5b3a-7c11-9e42-1a2b3c4d5e6f',
  ],
})
