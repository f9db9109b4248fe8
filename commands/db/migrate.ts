import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, writeJson, writeStdout } from '../../src/cli/print.ts'

export default class DbMigrate extends LocalCommand {
  static override summary = 'Apply pending migrations'
  static override description =
    'For AUTO_MIGRATE=false; otherwise `svc serve` applies them when it starts. Safe to run repeatedly, or on several machines concurrently.'
  static override examples = ['svc db migrate\nApplied 0001_foundation']
  static override flags = { ...dataDirFlag }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbMigrate)
    const { migrateNow } = await import('../../daemon/database.ts')
    const applied = await migrateNow(flags, printNote)
    const text = applied.length === 0 ? 'Nothing to apply' : `Applied ${applied.join(', ')}`
    const output = parseOutputFlags(flags)
    await (output.format === 'json' ? writeJson(output, { applied }) : writeStdout(`${text}\n`))
  }
}
