import { command } from '../../src/cli/command.ts'
import { sites } from '../../src/tenancy/contract.ts'

export default command(sites.update, {
  examples: [
    'svc sites update "Main Office" --org blue-bakery --timezone Europe/Lisbon --jq .timezone\nEurope/Lisbon',
    `svc sites update "Main Office" --name "Head Office" --address '{"city": "Porto"}'`,
  ],
})
