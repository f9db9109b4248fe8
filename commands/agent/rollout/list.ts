import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(agentRollouts.list, {
  columns: ['id', 'version', 'status', 'wave', 'createdAt', 'endedAt'],
  examples: [
    'svc agent rollout list --columns version,status,wave\nVERSION  STATUS     WAVE\n1.2.0    running    2\n1.1.0    completed  3',
  ],
})
