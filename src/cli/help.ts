import type { Command } from '@oclif/core/command'
import { CommandHelp, Help } from '@oclif/core/help'
import { allowSequence } from '../core/terminal.ts'
import { writePaged } from './pager.ts'

const isCommand = (line: string): boolean =>
  /^(?:[A-Z_]+=\S+ )*(?:svc|<%= config\.bin %>)(?: |$)/.test(line) || /\| svc /.test(line)

/** Examples first, then the usage; common flags last. */
class ExamplesFirst extends CommandHelp {
  protected override sections() {
    const sections = super.sections()
    const examples = sections.filter(({ header }) => header === 'EXAMPLES')
    return [...examples, ...sections.filter(({ header }) => header !== 'EXAMPLES')]
  }

  /** The summary is printed at the top already. */
  protected override description(): string | undefined {
    const { description } = this.command
    return description ? this.wrap(description) : undefined
  }

  /** Every command on one line, so that it can be pasted: a line break within quotes would change it. */
  protected override examples(examples: Command.Example[] | string | undefined): string | undefined {
    const shown = [examples ?? []].flat().map((example) => {
      const lines = (typeof example === 'string' ? example : `${example.description}\n${example.command}`)
        .split('\n')
        .map((line) => (isCommand(line) ? `$ ${line}` : line))
      const isTitled = lines[1]?.startsWith('$ ') && !lines[0]!.startsWith('$ ')
      return isTitled ? `${lines[0]}\n\n${this.indent(lines.slice(1).join('\n'))}` : lines.join('\n')
    })
    return shown.join('\n\n') || undefined
  }

  protected override defaultUsage(): string {
    const args = Object.values(this.command.args ?? {})
      .filter(({ hidden }) => !hidden)
      .map((arg) => (arg.multiple ? this.arg({ ...arg, name: `${arg.name}...` }) : this.arg(arg)))
    return [this.command.id, ...args, '[FLAGS]'].join(' ')
  }
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches them
const sgr = /\u001b\[[\d;]*m/g

export default class SvcHelp extends Help {
  protected override CommandHelpClass = ExamplesFirst

  #text = ''

  /** All at once, for a pager. */
  override async showHelp(argv: string[]): Promise<void> {
    // oclif reads the word as a wish for help about nothing.
    const own = argv.length === 1 && argv[0] === 'help' ? this.config.findCommand('help') : undefined
    await (own ? this.showCommandHelp(own) : super.showHelp(argv))
    const text = this.#text
    this.#text = ''
    await writePaged(text)
  }

  /** Help contains no data, so all of its color sequences are the program's own. */
  protected override log(...texts: string[]): void {
    this.#text += `${texts.map((text) => text.replace(sgr, allowSequence)).join(' ')}\n`
  }

  /** `svc orgs` is listed once, as the topic that it opens. */
  protected override get sortedCommands() {
    const isTopic = (id: string) => this.config.commandIDs.some((other) => other.startsWith(`${id}:`))
    return super.sortedCommands.filter(({ id }) => !isTopic(id))
  }
}
