import { agentVersions } from '../../src/agents/versions/contract.ts'
import { formatPromoted } from '../../src/cli/agent-releases.ts'
import { command } from '../../src/cli/command.ts'

export default command(agentVersions.promote, {
  args: ['version'],
  format: formatPromoted,
  description:
    'Machines that the version has no build for keep what they have. Machines that run a newer one keep it, and one that is older than what is offered is refused: svc agent rollback goes back. What a rollout brought is taken back by svc agent rollout roll-back. A promotion ends a roll-back. Not while a rollout is in progress. Needs a second factor, and system scope.',
  examples: [
    'svc agent promote 1.2.3\nOffered to machines: agent:linux/amd64, agent:windows/amd64\nInstead of agent:linux/amd64@1.2.2, agent:windows/amd64@1.2.2',
    'svc agent promote 1.2.3 --component agent --json --jq .demoted',
  ],
})
