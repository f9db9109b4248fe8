import { command } from '../../src/cli/command.ts'
import { partners } from '../../src/tenancy/contract.ts'

export default command(partners.me, {
  examples: [
    'svc partners me\nId:                 0197c1c4-6f10-7b0a-8a52-5b1f6e0c9d01\nName:               Acme IT\nSlug:               acme',
    'svc partners me --jq .settings.timezone\nEurope/Paris',
  ],
})
