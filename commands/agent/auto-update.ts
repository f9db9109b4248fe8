import { deviceCommands } from '../../src/agents/commands/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(deviceCommands.setAutoUpdate, {
  args: ['enabled'],
  format: ({ id }) => `Sent to its agent: ${String(id)}\n`,
  description:
    'The agent keeps the setting across restarts. autoUpdate of svc devices show has the setting, and what the agent reports.',
  examples: [
    'svc agent auto-update web-1 off\nSent to its agent: 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f',
    'svc agent auto-update web-1 on --json',
  ],
})
