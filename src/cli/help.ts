import type { Command } from '@oclif/core/command'
import { CommandHelp, Help } from '@oclif/core/help'
import { allowSequence } from '../core/terminal.ts'
import { writePaged } from './pager.ts'
import { displayWidth, truncate, wrapWords } from './text-width.ts'

const isCommand = (line: string): boolean =>
  /^(?:[A-Z_]+=\S+ )*(?:svc|<%= config\.bin %>)(?: |$)/.test(line) || /\| svc /.test(line)

/** The parts of `one|two|three` that fit a line each; any other word as it is. */
function partsOf(word: string, width: number): string[] {
  if (displayWidth(word) <= width) return [word]
  const parts: string[] = []
  for (const value of word.split(/(?<=\|)/)) {
    const longer = `${parts.at(-1) ?? ''}${value}`
    if (parts.length > 0 && displayWidth(longer) <= width) parts[parts.length - 1] = longer
    else parts.push(value)
  }
  return parts
}

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

  /**
   * Every command on one line, so that it can be pasted: a line break within quotes would change it. What it prints is cut
   * where a terminal ends, as its tables are.
   */
  protected override examples(examples: Command.Example[] | string | undefined): string | undefined {
    const { columns } = process.stdout
    const cut = (line: string) =>
      columns === undefined ? line : truncate(line, columns - 2 * this.indentSpacing)
    const shown = [examples ?? []].flat().map((example) => {
      const lines = (typeof example === 'string' ? example : `${example.description}\n${example.command}`)
        .split('\n')
        .map((line) => (isCommand(line) ? `$ ${line}` : cut(line)))
      const isTitled = lines[1]?.startsWith('$ ') && !lines[0]!.startsWith('$ ')
      return isTitled ? `${lines[0]}\n\n${this.indent(lines.slice(1).join('\n'))}` : lines.join('\n')
    })
    return shown.join('\n\n') || undefined
  }

  /** oclif's own breaks words anywhere, and indents some of what it has wrapped by two columns more than it says. */
  override wrap(body: string, spacing = this.indentSpacing): string {
    const width = (this.opts.maxWidth ?? 80) - spacing - 2
    const fitted = (line: string) =>
      line
        .split(' ')
        .flatMap((word) => partsOf(word, width))
        .join(' ')
    return this.render(body)
      .split('\n')
      .flatMap((line) => wrapWords(fitted(line), width))
      .join('\n')
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

  protected override summary(command: Command.Loadable): string | undefined {
    const summary = super.summary(command)
    return summary && this.wrap(summary, 0)
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
