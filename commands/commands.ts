import { LocalCommand } from '../src/cli/base.ts'
import { listCommands } from '../src/cli/command-catalog.ts'
import { parseOutputFlags } from '../src/cli/print.ts'

export default class Commands extends LocalCommand {
  static override summary = 'List all commands; --json for tools'
  static override examples = ['svc commands --columns id --no-header', 'svc commands --json']

  async run(): Promise<void> {
    const { flags } = await this.parse(Commands)
    await listCommands(this.config.commands, parseOutputFlags(flags))
  }
}
