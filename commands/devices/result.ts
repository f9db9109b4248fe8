import { deviceCommands } from '../../src/agents/commands/contract.ts'
import { command } from '../../src/cli/command.ts'
import { describeOutcome } from '../../src/cli/device-commands.ts'

export default command(deviceCommands.show, {
  multiline: true,
  format: describeOutcome,
  description:
    'Outputs are kept for 30 days, and within the configured bytes of each device: the oldest are deleted first, and then have dropped.',
  examples: [
    'svc devices result web-1 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f\ncollect completed in 812 ms',
    'svc devices result web-1 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f --jq .result.stdout',
  ],
})
