import { command } from '../../src/cli/command.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'

export default command(enrollmentKeys.rotate, {
  secret: 'key',
  description:
    'The old key stops working immediately. The new one is displayed only once, alone on standard output.',
  examples: [
    'svc enroll rotate "Front desk" 2>/dev/null\n1b9d3e5f7a2c4e6081a3c5e7092b4d6f8a1c3e5f70924b6d8fa1c3e5f7092b4d',
    'For another week\nsvc enroll rotate "Front desk" --expires-at 7d',
    'Without a limit of uses\nsvc enroll rotate "Front desk" --max-usage null --out-file front-desk.key',
  ],
})
