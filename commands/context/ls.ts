import { LocalCommand } from '../../src/cli/base.ts'
import { listContexts } from '../../src/cli/contexts.ts'
import { parseOutputFlags } from '../../src/cli/print.ts'

export default class ContextLs extends LocalCommand {
  static override summary = 'List contexts: a URL, who is signed in there, and the default organization'
  static override examples = [
    'svc context ls\nCURRENT  NAME  URL                      ORG   EMAIL              STORE\n*        prod  https://svc.example.com  acme  admin@example.com  keychain',
    'svc context ls --json',
  ]

  async run(): Promise<void> {
    const { flags } = await this.parse(ContextLs)
    await listContexts(parseOutputFlags(flags))
  }
}
