import { boolean, string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/base.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class OrgsImport extends ApiCommand {
  static override summary = 'Create organizations from a CSV, JSON or NDJSON file'
  static override description =
    'Columns or fields: name, slug, partner, type, status, maxDevices, contractStart, contractEnd, settings. Only name is required: a missing slug is derived from it. Every row is checked before the first one is sent; the exit code is 0 when all of them exist afterwards.'
  static override examples = [
    'svc orgs import customers.csv\n1/2 created blue-bakery\n2/2 created green-garage\n2 created',
    'Without failing on existing ones\nsvc orgs import customers.csv --if-not-exists',
    'In system scope, from another program\nexport-crm | svc orgs import - --partner acme --json',
    'svc orgs import customers.ndjson --dry-run',
  ]
  static override args = { file: textArg('File to read; - for standard input') }
  static override flags = {
    partner: string({
      description: 'Parent partner of rows without one (id, slug or name)',
      helpValue: 'PARTNER',
    }),
    'dry-run': boolean({ description: 'Check every row and print what would be created; send nothing' }),
    'if-not-exists': boolean({ description: 'Existing organizations are not a failure' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(OrgsImport)
    const { importOrgs } = await import('../../src/cli/import.ts')
    await importOrgs(this.open(flags), String(args.file), {
      partner: flags.partner,
      existing: flags['if-not-exists'],
      dry: flags['dry-run'],
    })
  }
}
