import { command } from '../../src/cli/command.ts'
import { sites } from '../../src/tenancy/contract.ts'

export default command(sites.show, {
  examples: [
    'svc sites show "Main Office" --org blue-bakery\nId:          0197c1c5-03b2-7d48-b1a9-4f6f0e7c8b22\nOrg id:      0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nName:        Main Office',
    'svc sites show 0197c1c5-03b2-7d48-b1a9-4f6f0e7c8b22 --json',
  ],
})
