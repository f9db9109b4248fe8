import { command } from '../../src/cli/command.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'

export default command(enrollmentKeys.remove, {
  description: 'Machines that enrolled with it stay enrolled.',
  examples: [
    'svc enroll delete "Front desk" --yes\nEnrollment key deleted',
    'svc enroll delete "Front desk" --dry-run\nDELETE https://svc.example.com/api/v1/enrollment-keys/0197c1c6-11d0-7f3c-8e44-9a2b7c6d5e33',
    'svc enroll delete "Front desk" --yes --ignore-not-found',
  ],
})
