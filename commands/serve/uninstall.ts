import { string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { stepFlags } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class ServeUninstall extends LocalCommand {
  static override summary = 'Undo svc serve install'
  static override description =
    'Stops the service and removes its unit. Data, settings, secrets and the user stay; it says where.'
  static override examples = ['svc serve uninstall --yes', 'svc serve uninstall --dry-run']
  static override flags = {
    'etc-dir': string({ description: 'Directory of settings and secrets; /etc/svc', helpValue: 'DIR' }),
    'unit-dir': string({
      description: 'Directory of the unit; /etc/systemd/system',
      helpValue: 'DIR',
    }),
    ...stepFlags,
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(ServeUninstall)
    const { uninstallService } = await import('../../src/cli/service/install.ts')
    const outcome = await uninstallService(flags)
    await printRecord(parseOutputFlags(flags), outcome, undefined, () => outcome.unit ?? '')
  }
}
