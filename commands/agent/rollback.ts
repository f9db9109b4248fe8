import { agentVersions } from '../../src/agents/versions/contract.ts'
import { formatRolledBack } from '../../src/cli/agent-releases.ts'
import { command } from '../../src/cli/command.ts'

export default command(agentVersions.rollback, {
  args: ['version'],
  confirmation: 'Bring machines that run a newer version back to this one?',
  format: formatRolledBack,
  description:
    'Machines go back with their next heartbeat, and stay until a version is promoted: svc agent promote ends the rollback, with a newer version or with this one. It aborts a rollout of a newer version. Never below the lowest version that a signed release allows, which agents store and check themselves. Needs a second factor, and system scope.',
  examples: [
    'svc agent rollback 1.2.2 --yes\nMachines with a newer version go back to it: agent:linux/amd64, agent:windows/amd64\nInstead of agent:linux/amd64@1.2.3, agent:windows/amd64@1.2.3',
    'svc agent rollback 1.2.2 --platform windows --yes --json --jq .demoted',
  ],
})
