import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'
import { latestRollout } from '../../../src/cli/rollouts/latest.ts'

export default command(agentRollouts.halt, {
  argDefaults: { id: latestRollout },
  format: ({ version }) => `${String(version)} is offered to no further device\n`,
  description:
    'Devices that were already offered the version may still install it; svc agent rollout roll-back brings them back.',
  examples: ['svc agent rollout halt\n1.2.0 is offered to no further device'],
})
