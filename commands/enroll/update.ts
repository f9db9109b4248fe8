import { command } from '../../src/cli/command.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'

export default command(enrollmentKeys.update, {
  description:
    'The key itself does not change, and neither does the number of devices that have enrolled with it.',
  examples: [
    'svc enroll update "Front desk" --max-usage 20',
    'svc enroll update "Front desk" --name "Reception" --expires-at 7d',
  ],
})
