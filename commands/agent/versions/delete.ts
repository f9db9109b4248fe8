import { agentVersions } from '../../../src/agents/versions/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(agentVersions.remove, {
  description:
    'Not while it is offered to machines, or a rollout of it pins devices. Its files are not deleted.',
  examples: ['svc agent versions delete 1.3.0-rc.1 --yes', 'svc agent versions delete 1.3.0-rc.1 --dry-run'],
})
