import { boolean, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class AgentInstall extends LocalCommand {
  static override summary = 'Make the agent a service of this machine'
  static override description =
    'Copies the single-file agent into its state directory, which a user of its own owns, and has systemd run it, with no more ' +
    'rights than it needs. The enrollment key is left in a file that only that user can read, and that the agent removes.'
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
      description: 'Where the agent keeps its identity, its state and its binary; /var/lib/svc-agent',
      helpValue: 'DIR',
    }),
    user: string({ description: 'User that it runs as; svc-agent', helpValue: 'USER' }),
    binary: string({ description: 'The agent as a single file', helpValue: 'FILE' }),
    'unit-dir': string({
      description: 'Where the unit is written; /etc/systemd/system',
      helpValue: 'DIR',
    }),
    print: boolean({ description: 'Print the unit, and do nothing' }),
    'dry-run': boolean({ description: 'Say what would be done, and do nothing' }),
    yes: boolean({ description: 'Do not ask' }),
    'no-input': boolean({ description: 'Never ask; fail instead [env: SVC_NO_INPUT]' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AgentInstall)
    const { installAtTerminal } = await import('../../src/device-agent/install/terminal.ts')
    const outcome = await installAtTerminal(flags, undefined)
    await printRecord(parseOutputFlags(flags), outcome, undefined, () => outcome.unit ?? '')
  }
}
