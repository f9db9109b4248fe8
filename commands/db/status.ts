import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, rowPrinter } from '../../src/cli/print.ts'

export default class DbStatus extends LocalCommand {
  static override summary = 'Show which migrations were applied to the database'
  static override description =
    'Works directly on the database that `svc serve` would use: SQLite in the data directory, or DATABASE_URL.'
  static override examples = [
    'svc db status\nNAME             STATE    APPLIED AT\n0001_foundation  applied  2026-03-01T12:00:00.000Z',
  ]
  static override flags = { ...dataDirFlag }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbStatus)
    const { statusOf } = await import('../../daemon/database.ts')
    const printer = rowPrinter(parseOutputFlags(flags), ['name', 'state', 'appliedAt'])
    await printer.rows(await statusOf(flags, printNote))
    await printer.end()
  }
}
