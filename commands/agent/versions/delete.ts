import { agentVersions } from '../../../src/agents/versions/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(agentVersions.remove, {
  description:
    'Not while machines are offered it, nor while a rollout of it decides what devices are offered. Its files stay where they are.',
  examples: ['svc agent versions delete 1.3.0-rc.1 --yes', 'svc agent versions delete 1.3.0-rc.1 --dry-run'],
})
