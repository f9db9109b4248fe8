import { Command } from '@oclif/core/command'
import { textArg } from '../src/cli/flags.ts'
import Help from '../src/cli/help.ts'
import { helpPages } from '../src/cli/topics.ts'

export default class HelpCommand extends Command {
  static override summary = 'Explain a command, or exit-codes, environment, filters, formatting'
  static override examples = ['svc help orgs create', 'svc help exit-codes']
  static override strict = false
  static override args = {
    command: textArg('Command, or one of exit-codes, environment, filters, formatting', false),
  }

  async run(): Promise<void> {
    const { argv } = await this.parse(HelpCommand)
    const words = argv as string[]
    const page = words.length === 1 && Object.hasOwn(helpPages, words[0]!) ? helpPages[words[0]!] : undefined
    if (page !== undefined) return void process.stdout.write(page)
    await new Help(this.config, this.config.pjson.oclif.helpOptions ?? {}).showHelp(words)
  }
}
