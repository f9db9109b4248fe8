import { boolean, string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { planFlags, withoutSecretsFlag } from '../../src/cli/config/flags.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class ConfigPlan extends ApiCommand {
  static override endpoints = ['POST /config/plan']
  static override summary = 'Say what applying files would change, and change nothing'
  static override description =
    'Reads YAML or JSON files, or folders of them. A section that no file has is not managed; [] means none. The service does what the files ask for and rolls it back, so that a plan shows every refusal and every fault, with file, line and column. Files read variables that begin with SVC_CONFIG_ or that --env names, and files beside them; what came from either is never printed. man/svc-config.5 describes the files. With --without-secrets, such as for a pull request, it needs none of the secrets; such a plan cannot be saved.'
  static override examples = [
    'svc config plan production.yaml\nsites\n  + blue-bakery / Main Office\n  ~ blue-bakery / Store\n      timezone: "UTC" → "Europe/Paris"\nSet default: 1 to create, 1 to change',
    'svc config plan config/ --set production --prune --out plan.json',
    'svc config plan config/ --set production --without-secrets --markdown > comment.txt',
  ]
  static override args = { file: textArg('Files and folders; - for standard input', true, undefined, true) }
  static override flags = {
    ...planFlags,
    ...withoutSecretsFlag,
    out: string({ description: 'Save the plan for svc config apply --plan, mode 0600', helpValue: 'FILE' }),
    markdown: boolean({ description: 'Print it for a comment on a pull request, at most 60,000 characters' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(ConfigPlan)
    const { planFiles } = await import('../../src/cli/config/run.ts')
    await planFiles(this.open(flags), args.file as string[], flags)
  }
}
