import { ApiCommand } from '../../src/cli/base.ts'
import { planFlags } from '../../src/cli/config/flags.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class ConfigDiff extends ApiCommand {
  static override endpoints = ['POST /config/plan']
  static override summary = 'Show in what the service differs from files: exit 0 for nothing, 1 for something'
  static override description =
    'For cron: the same as svc config plan, with an exit code. More than 1 is an error, as svc help exit-codes says.'
  static override examples = [
    'svc config diff production.yaml\nsites\n  ~ blue-bakery / Store\n      timezone: "UTC" → "Europe/Paris"\nSet default: 1 to change',
    'svc config diff config/ --set production --json',
  ]
  static override args = { file: textArg('Files and folders; - for standard input', true, undefined, true) }
  static override flags = planFlags

  async run(): Promise<void> {
    const { args, flags } = await this.parse(ConfigDiff)
    const { diffFiles } = await import('../../src/cli/config/run.ts')
    await diffFiles(this.open(flags), args.file as string[], flags)
  }
}
