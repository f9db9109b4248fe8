import { command } from '../../src/cli/command.ts'
import { durationFlags } from '../../src/cli/duration-flags.ts'
import { logLevels } from '../../src/live/contract.ts'

export default command(logLevels.set, {
  args: ['level'],
  customFlags: durationFlags(
    'durationMinutes',
    'Duration, such as 30m or 2h; by default an hour, at most a day',
  ),
  format: ({ level, until }) => `Its agent sends ${String(level)} and worse until ${String(until)}\n`,
  description: 'svc logs diagnostic shows these entries. The device has to be connected.',
  examples: [
    'svc logs level web-1 debug --for 30m\nIts agent sends debug and worse until 2026-01-31T12:30:00.000Z',
    'svc logs level web-1 warn',
  ],
})
