import { boolean, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { addContext } from '../../src/cli/contexts.ts'
import { textArg } from '../../src/cli/flags.ts'
import { printNote } from '../../src/cli/print.ts'

export default class ContextAdd extends LocalCommand {
  static override summary = 'Add a context, or change the URL or default organization of one'
  static override examples = [
    'svc context add prod --url https://svc.example.com --org acme --use\nContext prod: https://svc.example.com, organization acme',
  ]
  static override args = { name: textArg('Name of the context') }
  static override flags = {
    url: string({ description: 'Address of the service', required: true, helpValue: 'URL' }),
    org: string({ description: 'Default organization: id, slug or name', helpValue: 'ORG' }),
    use: boolean({ description: 'Make it the current one' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(ContextAdd)
    const context = await addContext(String(args.name), flags)
    printNote(`Context ${args.name}: ${context.url}${context.org ? `, organization ${context.org}` : ''}`)
  }
}
