import { deviceCommands } from '../../src/agents/commands/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(deviceCommands.list, {
  columns: ['id', 'type', 'status', 'createdAt', 'completedAt'],
  description:
    'pending: it waits for the agent. sent: the agent received it and has not answered. Finished commands are kept for 30 days.',
  examples: [
    'svc devices commands web-1\nID                                    TYPE     STATUS     CREATED AT                COMPLETED AT\n0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f  collect  completed  2026-01-31T12:00:00.000Z  2026-01-31T12:00:01.204Z',
    'svc devices commands web-1 --status failed --all -o ndjson',
  ],
})
