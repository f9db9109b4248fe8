import { string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { partnerFlag, variableFlags } from '../../src/cli/config/flags.ts'

export default class ConfigExport extends ApiCommand {
  static override endpoints = ['GET /config/export']
  static override summary = 'Print what there is as a file'
  static override description =
    'The head of the file lists what files do not describe, with the reason; what is left out besides is said on standard error. A merged file keeps what holds a variable as it stands; variables in names are read, to know which objects are meant. svc config apply --adopt takes over what the file describes.'
  static override examples = [
    'svc config export > production.yaml',
    'svc config export --org blue-bakery > blue-bakery.yaml',
    'svc config export --merge production.yaml --set production > merged.yaml',
    'svc config export --json --jq .uncovered',
  ]

  static override flags = {
    merge: string({
      description: 'Print this file with what has changed: its comments, order and variables stay',
      helpValue: 'FILE',
    }),
    set: string({ description: 'Leave out what other sets than this one own', helpValue: 'NAME' }),
    ...variableFlags,
    ...partnerFlag,
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(ConfigExport)
    const { exportFile } = await import('../../src/cli/config/run.ts')
    await exportFile(this.open(flags), flags)
  }
}
