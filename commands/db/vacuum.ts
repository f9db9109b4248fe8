import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, writeJson, writeStdout } from '../../src/cli/print.ts'
import { formatBytes } from '../../src/core/byte-size.ts'

export default class DbVacuum extends LocalCommand {
  static override summary = 'Shrink the SQLite file to what it holds'
  static override description =
    'Stop the service first. The file is written anew without the room of deleted rows, which needs twice its size of free disk meanwhile. Files of earlier versions are converted: from then on the service returns such room to the disk by itself. A file that is interrupted stays as it was.'
  static override examples = ['svc db vacuum\nShrunk from 2.1 GiB to 310 MiB in 64 s']
  static override flags = { ...dataDirFlag }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbVacuum)
    const { vacuumNow } = await import('../../daemon/database.ts')
    const done = await vacuumNow(flags, printNote)
    const { before, after, milliseconds } = done
    const seconds = Math.ceil(milliseconds / 1000)
    const text = `Shrunk from ${formatBytes(before)} to ${formatBytes(after)} in ${seconds} s`
    const output = parseOutputFlags(flags)
    await (output.format === 'json' ? writeJson(output, done) : writeStdout(`${text}\n`))
  }
}
