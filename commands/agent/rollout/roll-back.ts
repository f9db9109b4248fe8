import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'
import { latestRollout } from '../../../src/cli/rollouts/latest.ts'

export default command(agentRollouts.rollBack, {
  argDefaults: { id: latestRollout },
  confirmation: 'End the rollout and bring its devices back to the promoted version?',
  format: ({ version }) =>
    `Devices on ${String(version)} go back with their next heartbeat; svc agent rollout status --watch shows how many are left\n`,
  description: 'Where no version is promoted, each device goes back to its previous version.',
  examples: [
    'svc agent rollout roll-back --yes\nDevices on 1.2.0 go back with their next heartbeat; svc agent rollout status --watch shows how many are left',
  ],
})
