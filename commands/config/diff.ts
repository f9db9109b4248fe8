import { boolean } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { planFlags, withoutSecretsFlag } from '../../src/cli/config/flags.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class ConfigDiff extends ApiCommand {
  static override endpoints = ['POST /config/plan']
  static override summary = 'Show in what the service differs from files: exit 0 for nothing, 1 for something'
  static override description =
    'The same as svc config plan, with an exit code, and with who last set each field that differs, or deleted what is missing, for those who may read the audit log. With --watch-exit, such as for cron, 0 is no difference, 1 a difference and more than 1 an error: what is exit 1 otherwise, such as an error of the service, is 9, and so is output that cannot be written. svc help exit-codes has all of them.'
  static override examples = [
    'svc config diff production.yaml\nsites\n  ~ blue-bakery / Store\n      timezone: "UTC" → "Europe/Paris"\n        set by ada@example.com at 2026-01-31T12:00:00.000Z, audit entry 0197c1c8-6b9e-7d1e-9a53-2f6c0e8b1d47\nSet default: 1 to change',
    'svc config diff config/ --set production --json',
    'svc config diff config/ --set production --watch-exit > drift.txt || [ $? -gt 1 ] || mail -s drift ops@example.com < drift.txt',
  ]
  static override args = { file: textArg('Files and folders; - for standard input', true, undefined, true) }
  static override flags = {
    ...planFlags,
    ...withoutSecretsFlag,
    'watch-exit': boolean({
      description: 'For cron: 1 is a difference and nothing else; every error is more than 1',
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(ConfigDiff)
    const { diffFiles } = await import('../../src/cli/config/run.ts')
    await diffFiles(this.open(flags), args.file as string[], flags)
  }
}
