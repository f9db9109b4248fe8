import { command } from '../../src/cli/command.ts'
import { partners } from '../../src/tenancy/contract.ts'

export default command(partners.create, {
  existing: { list: partners.list },
  examples: [
    'svc partners create --name "Acme IT" --slug acme -q\n0197c1c4-6f10-7b0a-8a52-5b1f6e0c9d01',
    'svc partners create --name "Acme IT" --slug acme --plan pro --max-organizations 50',
  ],
})
