import { LocalCommand } from '../../src/cli/base.ts'
import { removeContext } from '../../src/cli/contexts.ts'
import { textArg } from '../../src/cli/flags.ts'
import { printNote } from '../../src/cli/print.ts'

export default class ContextRm extends LocalCommand {
  static override summary = 'Remove a context and the session stored for it'
  static override description =
    'The session itself stays valid at the service until it expires; svc logout revokes it.'
  static override examples = ['svc context rm prod\nContext prod removed']
  static override args = { name: textArg('Name of the context') }

  async run(): Promise<void> {
    const { args } = await this.parse(ContextRm)
    await removeContext(String(args.name))
    printNote(`Context ${args.name} removed`)
  }
}
