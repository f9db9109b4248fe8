import { command } from '../../src/cli/command.ts'
import { durationFlags } from '../../src/cli/duration-flags.ts'
import { logLevels } from '../../src/live/contract.ts'

export default command(logLevels.set, {
  args: ['level'],
  customFlags: durationFlags(
    'durationMinutes',
    'How long, such as 30m or 2h; an hour unless told, at most a day',
  ),
  format: ({ level, until }) => `Its agent hands in ${String(level)} and worse until ${String(until)}\n`,
  description: 'What it says then shows in svc logs diagnostic. The device has to be connected.',
  examples: [
    'svc logs level web-1 debug --for 30m\nIts agent hands in debug and worse until 2026-01-31T12:30:00.000Z',
    'svc logs level web-1 warn',
  ],
})
