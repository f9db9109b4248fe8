import { command } from '../../src/cli/command.ts'
import { sites } from '../../src/tenancy/contract.ts'

export default command(sites.create, {
  existing: { list: sites.list, within: ['orgId'] },
  examples: [
    'svc sites create --org blue-bakery --name "Main Office" --timezone Europe/Paris -q\n0197c1c5-03b2-7d48-b1a9-4f6f0e7c8b22',
    `svc sites create --org blue-bakery --name Warehouse --address '{"city": "Lyon"}'`,
  ],
})
