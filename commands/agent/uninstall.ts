import { boolean, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { stepFlags } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class AgentUninstall extends LocalCommand {
  static override summary = 'Undo svc agent install'
  static override description =
    'Stops the agent and removes its unit, or its task and its program on Windows. The identity of the machine stays: after a new installation it is the same device.'
  static override examples = ['svc agent uninstall --yes', 'svc agent uninstall --purge --dry-run']
  static override flags = {
    'state-dir': string({
      description:
        'Directory of its identity, its state and its binary; /var/lib/svc-agent, or svc-agent in ProgramData',
      helpValue: 'DIR',
    }),
    user: string({ description: 'User that it runs as; svc-agent', helpValue: 'USER' }),
    'unit-dir': string({
      description: 'Directory of the unit; /etc/systemd/system',
      helpValue: 'DIR',
    }),
    purge: boolean({ description: 'Remove the state directory and the user as well' }),
    ...stepFlags,
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AgentUninstall)
    const { uninstallAtTerminal } = await import('../../src/device-agent/install/terminal.ts')
    const outcome = await uninstallAtTerminal(flags)
    await printRecord(parseOutputFlags(flags), outcome, undefined, () => outcome.unit ?? '')
  }
}
