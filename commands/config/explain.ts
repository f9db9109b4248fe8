import { ApiCommand } from '../../src/cli/command.ts'
import { explain, settingKeys } from '../../src/cli/explain.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class ConfigExplain extends ApiCommand {
  static override summary = 'Show where a setting comes from: flag, environment, context or default'
  static override description = `Settings: ${settingKeys.join(', ')}. Without one: all of them.`
  static override examples = [
    'svc config explain url\nLAYER    SOURCE          VALUE                    WINS\nflag     --url           -                        -\nenv      SVC_URL         https://svc.example.com  *\ncontext  context prod    https://old.example.com  -\ndefault  the default     http://127.0.0.1:3000    -',
    'svc config explain --json',
  ]
  static override args = { key: textArg('Name of the setting', false) }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(ConfigExplain)
    await explain(this.open(flags), args.key as string | undefined)
  }
}
