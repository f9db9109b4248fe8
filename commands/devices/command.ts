import { deviceCommands } from '../../src/agents/commands/contract.ts'
import { command } from '../../src/cli/command.ts'
import { payloadFlags, sendAndWait, waitFlags } from '../../src/cli/device-commands.ts'

export default command(deviceCommands.create, {
  args: ['type'],
  customFlags: payloadFlags,
  alternative: { flag: 'wait', flags: waitFlags, run: sendAndWait },
  format: ({ id, type }) => `${String(type)} waits for the agent: ${String(id)}\n`,
  description:
    'A connected agent receives it immediately, another one with its next heartbeat; after a week without delivery it fails. ' +
    'svc devices result shows its result.',
  examples: [
    'svc devices command web-1 collect --what inventory,logs --wait\ncollect completed in 812 ms',
    'svc devices command web-1 set_log_level --level debug --for 30m\nset_log_level waits for the agent: 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f',
    'svc devices command web-1 collect --payload \'{"what": ["metrics"]}\' --target-role watchdog',
  ],
})
