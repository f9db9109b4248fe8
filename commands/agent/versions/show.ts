import { agentVersions } from '../../../src/agents/versions/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(agentVersions.show, {
  examples: [
    'svc agent versions show 1.2.3',
    'svc agent versions show 1.2.3 --jq \'.files[] | "\\(.checksum)  \\(.name)"\'\n9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  svc-agent-linux-amd64',
  ],
})
