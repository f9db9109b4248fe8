import { CommandHelp, Help } from '@oclif/core/help'

/** Examples first, then how it is called; the flags everything has come last. */
class ExamplesFirst extends CommandHelp {
  protected override sections() {
    const sections = super.sections()
    const examples = sections.filter(({ header }) => header === 'EXAMPLES')
    return [...examples, ...sections.filter(({ header }) => header !== 'EXAMPLES')]
  }

  protected override defaultUsage(): string {
    const args = Object.values(this.command.args ?? {})
      .filter(({ hidden }) => !hidden)
      .map((arg) => this.arg(arg))
    return [this.command.id, ...args, '[FLAGS]'].join(' ')
  }
}

export default class SvcHelp extends Help {
  protected override CommandHelpClass = ExamplesFirst

  /** `svc orgs` is listed once, as the topic that it opens. */
  protected override get sortedCommands() {
    const isTopic = (id: string) => this.config.commandIDs.some((other) => other.startsWith(`${id}:`))
    return super.sortedCommands.filter(({ id }) => !isTopic(id))
  }
}
