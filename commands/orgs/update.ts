import { command } from '../../src/cli/command.ts'
import { orgs } from '../../src/tenancy/contract.ts'

export default command(orgs.update, {
  description:
    'suspended lets its machines report and nobody in; churned refuses them as well. Either ends sessions and keys, which do not come back with it. --settings is merged: what it leaves out stays, null takes a setting out.',
  examples: [
    'svc orgs update blue-bakery --status suspended --jq .status\nsuspended',
    'svc orgs update blue-bakery --name "Blue Bakery & Sons" --max-devices 40',
    `Everyone has to use a second factor\nsvc orgs update blue-bakery --settings '{"security": {"requireMfa": true}}'`,
    'svc orgs update blue-bakery --contract-end null --dry-run',
  ],
})
