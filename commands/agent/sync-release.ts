import { agentVersions } from '../../src/agents/versions/contract.ts'
import { formatSynced } from '../../src/cli/agent-releases.ts'
import { command } from '../../src/cli/command.ts'

export default command(agentVersions.sync, {
  args: ['version'],
  format: formatSynced,
  description:
    'The service reads the release where RELEASE_API_URL says, or in AGENT_BINARY_DIR, believes its signed manifest, and offers it to machines unless --no-promote is said, or machines would go back to it, or have been rolled back from it. Without VERSION the latest stable release; a candidate has to be named. Needs a second factor, and system scope.',
  examples: [
    'svc agent sync-release\n1.2.3 is registered for agent:linux/amd64, agent:windows/amd64',
    'svc agent sync-release v1.3.0-rc.1 --no-promote\n1.3.0-rc.1 is registered for agent:linux/amd64',
  ],
})
