import { command } from '../../src/cli/command.ts'
import { scripts } from '../../src/scripts/contract.ts'

export default command(scripts.create, {
  existing: { list: scripts.list, within: ['orgId', 'partnerId'] },
  description:
    'A script belongs to an organization, to a partner (all its organizations can use it) or, with --is-system, to the service.',
  examples: [
    'svc scripts create --org blue-bakery --name "Clear temporary files" --os linux --language bash --file clear.sh -q\n0197c1f0-5b3a-7c11-9e42-1a2b3c4d5e6f',
    'svc scripts create --name "Restart spooler" --os windows --language powershell --run-as elevated --file - < restart.ps1',
  ],
})
