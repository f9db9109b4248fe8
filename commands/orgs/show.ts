import { command } from '../../src/cli/command.ts'
import { orgs } from '../../src/tenancy/contract.ts'

export default command(orgs.show, {
  examples: [
    'svc orgs show blue-bakery\nId:             0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nPartner id:     0197c1c4-6f10-7b0a-8a52-5b1f6e0c9d01\nName:           Blue Bakery\nSlug:           blue-bakery',
    'svc orgs show blue-bakery --json',
  ],
})
