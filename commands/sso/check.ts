import { command } from '../../src/cli/command.ts'
import { sso } from '../../src/sso/contract.ts'

export default command(sso.check, {
  description: 'Needs no sign-in, like a sign-in page. An unknown organization has none.',
  examples: [
    'svc sso check 0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11 --jq .provider.name\nOkta',
    'svc sso check 0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nSSO enabled: no',
  ],
})
