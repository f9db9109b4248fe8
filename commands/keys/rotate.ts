import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.rotate, {
  secret: 'key',
  description:
    'The old key stops working immediately unless an overlap is given. The new one is displayed only once, alone on standard output.',
  examples: [
    'svc keys rotate ci 2>/dev/null\nsvc_b4KdV8nRz2Xy6tQwEuLi0oPaSfGhJkMc',
    'Both keys work for an hour\nsvc keys rotate ci --overlap-seconds 1h --out-file ci.key',
    'It expires later than the old one\nsvc keys rotate ci --expires-at 90d',
  ],
})
