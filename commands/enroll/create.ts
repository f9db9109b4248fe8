import { command } from '../../src/cli/command.ts'
import { enrollInstructions } from '../../src/cli/enroll-instructions.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'

export default command(enrollmentKeys.create, {
  secret: 'key',
  instructions: enrollInstructions,
  existing: { list: enrollmentKeys.list, within: ['orgId', 'siteId'] },
  description:
    'The key is displayed only once: alone on standard output, so that it can be piped to a secret store. With --instructions that is ' +
    'one command instead, for sh as root or for PowerShell as administrator: it downloads the agent that the service offers, checks ' +
    'its SHA-256 and enrolls the machine. The key is in it, and reaches the agent by standard input.',
  examples: [
    'svc enroll create --org blue-bakery --name "Front desk" --max-usage 5 2>/dev/null\n6f2c0d7be9a14d0d9f0c5b1e7a3c8d42b7e1f6a09c3d5e8f1a2b4c6d8e0f1a3b',
    'svc enroll create --name "Front desk" --site "Main Office" --out-file front-desk.key',
    'svc enroll create --name ci --expires-at 12h --json',
    'svc enroll create --org blue-bakery --name web-1 --instructions linux | ssh root@web-1 sh',
  ],
})
