import { command } from '../../src/cli/command.ts'
import { orgs } from '../../src/tenancy/contract.ts'

export default command(orgs.update, {
  description:
    'suspended refuses people and programs but lets machines report; churned refuses machines as well. Both revoke sessions and keys permanently. --settings is merged: settings that it leaves out do not change, null removes one.',
  examples: [
    'svc orgs update blue-bakery --status suspended --jq .status\nsuspended',
    'svc orgs update blue-bakery --name "Blue Bakery & Sons" --max-devices 40',
    `Everyone has to use a second factor\nsvc orgs update blue-bakery --settings '{"security": {"requireMfa": true}}'`,
    'svc orgs update blue-bakery --contract-end null --dry-run',
  ],
})
