import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.rotate, {
  secret: 'key',
  description:
    'The old key stops working at once unless an overlap is asked for. The new one is shown once, alone on standard output.',
  examples: [
    'svc keys rotate ci 2>/dev/null\nsvc_b4KdV8nRz2Xy6tQwEuLi0oPaSfGhJkMc',
    'Both work for an hour\nsvc keys rotate ci --overlap-seconds 3600 --out-file ci.key',
  ],
})
