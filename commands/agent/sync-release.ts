import { agentVersions } from '../../src/agents/versions/contract.ts'
import { formatSynced } from '../../src/cli/agent-releases.ts'
import { command } from '../../src/cli/command.ts'

export default command(agentVersions.sync, {
  args: ['version'],
  format: formatSynced,
  description:
    'The service reads the release at RELEASE_API_URL, or with BINARY_SOURCE=local in AGENT_BINARY_DIR, verifies its signed manifest, and promotes it. It does not promote it with --no-promote, if it is older than the offered version, or if machines were rolled back from it. Without VERSION it takes the latest stable release; a candidate has to be named. Needs a second factor, and system scope.',
  examples: [
    'svc agent sync-release\n1.2.3 is registered for agent:linux/amd64, agent:windows/amd64',
    'svc agent sync-release v1.3.0-rc.1 --no-promote\n1.3.0-rc.1 is registered for agent:linux/amd64',
  ],
})
