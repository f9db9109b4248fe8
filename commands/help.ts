import { Command } from '@oclif/core/command'
import { displayOf } from '../src/cli/display.ts'
import { usageError } from '../src/cli/exit-codes.ts'
import { textArg } from '../src/cli/flags.ts'
import Help from '../src/cli/help.ts'
import { helpPages } from '../src/cli/help-pages.ts'
import { fitPage, helpSubjects, manualPage, manualPages } from '../src/cli/manual.ts'
import { writePaged } from '../src/cli/pager.ts'
import { didYouMean } from '../src/core/suggest.ts'

export default class HelpCommand extends Command {
  static override summary = 'Explain a command, or exit-codes, environment, filters, formatting'
  static override examples = ['svc help orgs create', 'svc help exit-codes', 'svc help svc-audit']
  static override strict = false
  static override args = {
    command: textArg(
      `Command, one of ${Object.keys(helpPages).join(', ')}, or a page of the manual: ${manualPages().sort().join(', ')}`,
      false,
    ),
  }

  async run(): Promise<void> {
    const { argv } = await this.parse(HelpCommand)
    const words = argv as string[]
    const [name = ''] = words
    const manual = words.length > 1 ? undefined : manualPage(name)
    if (manual !== undefined) return writePaged(fitPage(manual, displayOf(process.stdout)))
    if (words.length === 1 && Object.hasOwn(helpPages, name)) return writePaged(helpPages[name]!)
    if (words.length === 1 && !this.config.findCommand(name) && !this.config.findTopic(name))
      throw usageError(
        `There is no help about "${name}"`,
        didYouMean(
          name,
          [...helpSubjects(), ...this.config.topics.map((topic) => topic.name)],
          (one) => `svc help ${one}`,
        ) ?? `svc help lists the commands; there are also ${Object.keys(helpPages).join(', ')}`,
      )
    await new Help(this.config, this.config.pjson.oclif.helpOptions ?? {}).showHelp(words)
  }
}
