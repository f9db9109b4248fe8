import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'
import { latestRollout } from '../../../src/cli/rollouts/latest.ts'

export default command(agentRollouts.abort, {
  argDefaults: { id: latestRollout },
  confirmation: 'End the rollout for good? Devices that it has updated stay where they are',
  format: ({ version }) => `The rollout of ${String(version)} is over\n`,
  description:
    'Devices that it has updated keep the version until another one is promoted, or another rollout comes to them.',
  examples: ['svc agent rollout abort --yes\nThe rollout of 1.2.0 is over'],
})
