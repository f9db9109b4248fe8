import { command } from '../../src/cli/command.ts'
import { deadLetters } from '../../src/service/dead-letters/contract.ts'

export default command(deadLetters.show, {
  description: 'Its entry is shown as it was to be written. That it was read is audited.',
  examples: ['svc dead-letters show 17', 'svc dead-letters show 17 --jq .entry'],
})
