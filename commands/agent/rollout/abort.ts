import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'
import { latestRollout } from '../../../src/cli/rollouts/latest.ts'

export default command(agentRollouts.abort, {
  argDefaults: { id: latestRollout },
  confirmation: 'Abort the rollout permanently? Devices that it has updated keep their version',
  format: ({ version }) => `The rollout of ${String(version)} is over\n`,
  description:
    'Devices that it has updated keep the version until another one is promoted, or another rollout reaches them.',
  examples: ['svc agent rollout abort --yes\nThe rollout of 1.2.0 is over'],
})
