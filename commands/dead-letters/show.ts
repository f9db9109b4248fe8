import { command } from '../../src/cli/command.ts'
import { deadLetters } from '../../src/service/dead-letters/contract.ts'

export default command(deadLetters.show, {
  description: 'Its entry is printed as it should have been written. Reading it is audited.',
  examples: ['svc dead-letters show 17', 'svc dead-letters show 17 --jq .entry'],
})
