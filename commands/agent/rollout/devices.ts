import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'
import { latestRollout } from '../../../src/cli/rollouts/latest.ts'

export default command(agentRollouts.devices, {
  argDefaults: { id: latestRollout },
  columns: ['id', 'hostname', 'wave', 'state', 'agentVersion', 'reason'],
  description: 'By default of the last rollout.',
  examples: [
    'svc agent rollout devices --state failed --columns hostname,agentVersion,reason\nHOSTNAME     AGENT VERSION  REASON\nreception-1  1.1.0          Rolled back: exit 1',
    'svc agent rollout devices 1.2.0 --wave 1 --all -o ndjson',
  ],
})
