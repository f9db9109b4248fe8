import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, rowPrinter } from '../../src/cli/print.ts'

export default class SecretsList extends LocalCommand {
  static override summary = 'List the secrets of a service, and what still needs former ones'
  static override description =
    'Works on the data directory and the database of `svc serve`, with its environment. Shows ids, never secrets: an id tells two of them apart. Names processes that do not use a new one yet; with --json also those that use each one.'
  static override examples = [
    'svc secrets list\nNAME                ID        STATE     SOURCE     SINCE                     NEEDED BY\nAPP_ENCRYPTION_KEY  5f0c1d2e  current   generated  2026-03-01T12:00:00.000Z\nAPP_ENCRYPTION_KEY  a91b3c4d  previous  generated                            12 encrypted values',
  ]
  static override flags = { ...dataDirFlag }

  async run(): Promise<void> {
    const { flags } = await this.parse(SecretsList)
    const { listSecrets } = await import('../../daemon/secrets/ring.ts')
    const printer = rowPrinter(parseOutputFlags(flags), [
      'name',
      'id',
      'state',
      'source',
      'since',
      'neededBy',
    ])
    await printer.rows(await listSecrets(flags, new Date().toISOString()))
    await printer.end()
  }
}
