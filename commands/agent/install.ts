import { boolean, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { stepFlags } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class AgentInstall extends LocalCommand {
  static override summary =
    'Start the agent with this machine: as a systemd service, or a scheduled task of Windows'
  static override description =
    'Copies the single-file agent into its state directory, which a dedicated user owns, and has systemd run it, with no more ' +
    'privileges than it needs. The enrollment key is stored in a file that only that user can read, and that the agent removes. On ' +
    'Windows a scheduled task runs it as SYSTEM, from Program Files, once the machine is enrolled.'
  static override examples = [
    'svc agent install --binary svc-agent --url https://svc.example.com --enrollment-key @key.txt --yes',
    'svc agent install --binary svc-agent --dry-run',
    'svc agent install --print',
  ]
  static override flags = {
    url: string({
      description: 'Address of the service; by default the one the machine enrolled with [env: SVC_URL]',
      helpValue: 'URL',
    }),
    'enrollment-key': string({
      description: 'Key to enroll with: - for standard input, @file for a file [env: SVC_ENROLLMENT_KEY]',
      helpValue: '-|@FILE',
    }),
    'state-dir': string({
      description:
        'Directory of its identity, its state and its binary; /var/lib/svc-agent, or svc-agent in ProgramData',
      helpValue: 'DIR',
    }),
    user: string({ description: 'User to run as; svc-agent', helpValue: 'USER' }),
    binary: string({ description: 'The agent as a single file', helpValue: 'FILE' }),
    'unit-dir': string({
      description: 'Directory to write the unit to; /etc/systemd/system',
      helpValue: 'DIR',
    }),
    print: boolean({ description: 'Print the unit, or the task of Windows, and change nothing' }),
    ...stepFlags,
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AgentInstall)
    const { installAtTerminal } = await import('../../src/device-agent/install/terminal.ts')
    const outcome = await installAtTerminal(flags, undefined)
    await printRecord(parseOutputFlags(flags), outcome, undefined, () => outcome.unit ?? '')
  }
}
