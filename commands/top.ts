import { ApiCommand } from '../src/cli/command.ts'
import { usageError } from '../src/cli/exit-codes.ts'
import { booleanFlag, type FlagSet, textFlag } from '../src/cli/flags.ts'
import { parseDuration } from '../src/cli/settings.ts'
import { showTop } from '../src/cli/top/top.ts'

const minIntervalMs = 1000

export default class Top extends ApiCommand {
  static override endpoints = ['GET /overview']
  static override summary =
    'Show a fleet live: devices, heartbeats, alerts, webhooks, the rollout and the audit log'
  static override description =
    'Of what you can see: the installation, your customers or your organization; --org narrows it. What you may not read is left out, with the reason. The lines begin with the command. On a terminal until q or Ctrl-C; in a pipe it prints once, and with --json one document per interval.'
  static override examples = [
    `svc top --once
svc top: system scope, https://svc.example.com              2026-01-31 12:00:05Z

DEVICES            1 234  2 maintenance
  online           1 180  ▁
  offline             40  ▁
  updating            12  ▁
  heartbeats/s     19.67  ▁

AUDIT             12 345  in 3 chains; newest 4 711, 5f3c0a9be1d2
  verdict          sound  3 sound, last verified 2h ago`,
    'svc top --org blue-bakery --interval 2s',
    'svc top --json | jq -c "[.time, .devices.byStatus.offline]"',
  ]
  static override flags: FlagSet = {
    once: booleanFlag({ description: 'Print it once and end' }),
    interval: textFlag('Time between requests, from 1s; by default 5s', 'TIME'),
  }

  async run(): Promise<void> {
    const { flags } = (await this.parse(Top)) as unknown as {
      flags: { once?: boolean; interval?: string } & Parameters<ApiCommand['open']>[0]
    }
    const everyMs = parseDuration(flags.interval ?? '5s', '--interval')
    if (everyMs < minIntervalMs) throw usageError(`--interval takes a time from 1s, not "${flags.interval}"`)
    await showTop(this.open(flags), { once: flags.once === true, everyMs })
  }
}
