import { deviceCommands } from '../../src/agents/commands/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(deviceCommands.setAutoUpdate, {
  args: ['enabled'],
  format: ({ id }) => `Its agent is told: ${String(id)}\n`,
  description:
    'The agent keeps it across restarts. What was decided, and what the agent says, is autoUpdate of svc devices show.',
  examples: [
    'svc agent auto-update web-1 off\nIts agent is told: 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f',
    'svc agent auto-update web-1 on --json',
  ],
})
