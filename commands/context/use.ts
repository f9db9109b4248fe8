import { LocalCommand } from '../../src/cli/base.ts'
import { useContext } from '../../src/cli/contexts.ts'
import { textArg } from '../../src/cli/flags.ts'
import { printNote } from '../../src/cli/print.ts'

export default class ContextUse extends LocalCommand {
  static override summary = 'Make a context the current one'
  static override examples = ['svc context use prod\nContext prod: https://svc.example.com']
  static override args = { name: textArg('Name of the context') }

  async run(): Promise<void> {
    const { args } = await this.parse(ContextUse)
    const context = await useContext(String(args.name))
    printNote(`Context ${args.name}: ${context.url}`)
  }
}
