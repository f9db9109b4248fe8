import { agentVersions } from '../../../src/agents/versions/contract.ts'
import { command } from '../../../src/cli/command.ts'

export default command(agentVersions.list, {
  columns: ['version', 'channel', 'promotedFor', 'rollbackFor', 'minFrom', 'builds', 'createdAt'],
  description:
    'Newest first. Promoted for: builds offered to machines. Rollback for: builds also offered to machines with a newer version. Builds: all registered builds.',
  examples: [
    'svc agent versions\nVERSION     CHANNEL    PROMOTED FOR       ROLLBACK FOR       MIN FROM  BUILDS                                  CREATED AT\n1.3.0-rc.1  candidate  -                  -                  1.2.0     agent:linux/amd64                       2026-01-31T12:00:00.000Z\n1.2.3       stable     agent:linux/amd64  agent:linux/amd64  -         agent:linux/amd64, agent:windows/amd64  2026-01-24T12:00:00.000Z',
    'svc agent versions -q --limit 1\n1.3.0-rc.1',
  ],
})
