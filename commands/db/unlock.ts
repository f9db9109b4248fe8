import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, writeJson, writeStdout } from '../../src/cli/print.ts'

export default class DbUnlock extends LocalCommand {
  static override summary = 'End the connections that hold the migration lock'
  static override description =
    'For a server that hangs in the middle of a migration on Postgres. Its migration is rolled back. SQLite does not need this: its lock ends with the process.'
  static override examples = ['svc db unlock\nEnded 1 connection']
  static override flags = { ...dataDirFlag }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbUnlock)
    const { unlockNow } = await import('../../daemon/database.ts')
    const ended = await unlockNow(flags)
    const text = `Ended ${ended} ${ended === 1 ? 'connection' : 'connections'}`
    const output = parseOutputFlags(flags)
    await (output.format === 'json' ? writeJson(output, { ended }) : writeStdout(`${text}\n`))
  }
}
