import { command } from '../../src/cli/command.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'

export default command(enrollmentKeys.show, {
  examples: [
    'svc enroll show "Front desk"\nId:              0197c1c6-11d0-7f3c-8e44-9a2b7c6d5e33\nOrg id:          0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nSite id:         -\nName:            Front desk\nUsage count:     2',
    'svc enroll show "Front desk" --json',
  ],
})
