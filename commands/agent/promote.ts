import { agentVersions } from '../../src/agents/versions/contract.ts'
import { formatPromoted } from '../../src/cli/agent-releases.ts'
import { command } from '../../src/cli/command.ts'

export default command(agentVersions.promote, {
  args: ['version'],
  format: formatPromoted,
  description:
    'The version is offered to machines of its builds; machines with a newer version keep it. A version older than the offered one is refused: use svc agent rollback. svc agent rollout roll-back takes back the version of a rollout. A promotion ends a rollback. Not possible while a rollout is in progress. Needs a second factor, and system scope.',
  examples: [
    'svc agent promote 1.2.3\nOffered to machines: agent:linux/amd64, agent:windows/amd64\nInstead of agent:linux/amd64@1.2.2, agent:windows/amd64@1.2.2',
    'svc agent promote 1.2.3 --component agent --json --jq .demoted',
  ],
})
