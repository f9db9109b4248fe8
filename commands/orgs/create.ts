import { command } from '../../src/cli/command.ts'
import { orgs } from '../../src/tenancy/contract.ts'

export default command(orgs.create, {
  existing: { list: orgs.list, within: ['partnerId'] },
  examples: [
    'svc orgs create --name "Blue Bakery" --slug blue-bakery -q\n0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'In system scope\nsvc orgs create --partner acme --name "Blue Bakery" --slug blue-bakery',
    'Without failing if it exists\nsvc orgs create --name "Blue Bakery" --slug blue-bakery --if-not-exists',
  ],
})
