import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'
import { latestRollout } from '../../../src/cli/rollouts/latest.ts'

export default command(agentRollouts.resume, {
  argDefaults: { id: latestRollout },
  format: ({ version, wave }) => `The rollout of ${String(version)} continues with wave ${String(wave)}\n`,
  description: 'Earlier failures are accepted: only new failures can halt it again.',
  examples: ['svc agent rollout resume\nThe rollout of 1.2.0 continues with wave 2'],
})
