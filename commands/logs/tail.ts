import { ApiCommand } from '../../src/cli/command.ts'
import { choiceFlag, type FlagSet, textArg, textFlag } from '../../src/cli/flags.ts'
import { followFlags } from '../../src/cli/follow.ts'
import { levelNames } from '../../src/logs/tails/contract.ts'

export default class LogsTail extends ApiCommand {
  static override endpoints = [
    'GET /devices/:id/diagnostic-logs',
    'GET /devices/:id/eventlogs',
    'GET /logs/heads',
    'GET /logs/tail',
  ]
  static override summary =
    'Show the newest logs of devices or of an organization, both kinds merged, and with -f new ones as they arrive'
  static override description =
    'Without DEVICE: of every device of --org, else of every device you can see, up to 10,000; -n looks among the newest 200 entries of each, of 1,000 devices at most. In the order in which the service received them, each once, even with many in one millisecond. Times are those of the machines. With --cursor-file it continues where it stopped.'
  static override examples = [
    'svc logs tail -f reception-1\nTIMESTAMP                 DEVICE       LEVEL  SOURCE     MESSAGE\n2026-01-31T12:00:00.000Z  reception-1  warn   heartbeat  The service did not answer\n2026-01-31T12:00:09.000Z  reception-1  error  kernel     nvme0: I/O error',
    'svc logs tail -f --org blue-bakery --level warn,error,critical --since 10m\nTIMESTAMP                 DEVICE       LEVEL  SOURCE     MESSAGE\n2026-01-31T12:00:00.000Z  reception-1  warn   heartbeat  The service did not answer\n2026-01-31T12:00:04.000Z  till-3       error  kernel     nvme0: I/O error',
    'svc logs tail -f reception-1 reception-2 --level warn,error,critical --since 10m',
    'svc logs tail reception-1 --kind events --cursor-file events.cursor -o ndjson >> events.ndjson',
  ]
  static override args = { device: textArg('Devices: id, hostname or display name', false, undefined, true) }
  static override flags: FlagSet = {
    kind: choiceFlag('Only logs of this kind', ['diagnostic', 'events']),
    level: textFlag(`Only these levels, such as warn,error: ${levelNames.join(', ')}`, 'LEVELS'),
    component: textFlag('Only of this component of the agent', 'TEXT'),
    source: textFlag('Only from this source of events', 'TEXT'),
    since: textFlag(
      'From this time on: an age such as 10m or 7d, a date (UTC) such as 2026-01-31, or an instant',
      'TIME',
    ),
    until: textFlag('Only before this time', 'TIME'),
    grep: textFlag('Only messages that contain this text', 'TEXT'),
    ...followFlags,
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(LogsTail)
    const devices = [args.device ?? []].flat() as string[]
    const run = this.open(flags)
    if (devices.length > 0) {
      const { tailLogs } = await import('../../src/cli/logs-tail.ts')
      return tailLogs(run, devices, flags)
    }
    const { tailAllLogs } = await import('../../src/cli/logs-tail-all.ts')
    await tailAllLogs(run, flags)
  }
}
