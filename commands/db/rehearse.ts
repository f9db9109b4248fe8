import { custom } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { CliError, exitCodes } from '../../src/cli/exit-codes.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, rowPrinter } from '../../src/cli/print.ts'
import { type ProgressBar, progressBar } from '../../src/cli/progress.ts'
import { formatBytes } from '../../src/core/byte-size.ts'

export default class DbRehearse extends LocalCommand {
  static override summary = 'Apply pending migrations to a copy, and measure them'
  static override description =
    'Copies the database that `svc serve` would use, also while it runs, applies the migrations of this version to the copy, and removes it. The original stays as it is. ' +
    'On SQLite the copy is a folder in the data directory; on Postgres a database on the same server, for which the role needs CREATEDB.'
  static override examples = [
    'svc db rehearse\nNAME               TOOK   SIZE     ADDED\n0058_ended_alerts  0.4 s  812 MiB  1.5 MiB',
    '<%= config.bin %> db rehearse --scratch /mnt/large --json',
  ]
  static override flags = {
    ...dataDirFlag,
    scratch: custom<string>({
      description: 'Where to put the copy of an SQLite database; twice its size has to be free',
      helpValue: 'DIR',
    })(),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbRehearse)
    const output = parseOutputFlags(flags)
    const { rehearseNow } = await import('../../daemon/database.ts')
    const { signal } = this.abortOnSignals()
    let shown: { what: string; bar: ProgressBar } | undefined
    const onProgress = (what: string, done: number, total: number) => {
      if (shown?.what !== what) {
        shown?.bar.end()
        shown = { what, bar: progressBar(what, 'steps', total) }
      }
      shown.bar.done(done)
    }
    const rehearsal = await rehearseNow(flags, { signal, onProgress, note: printNote })
      .catch((error: unknown) => {
        if (!signal.aborted) throw error
        const parts = { exit: exitCodes.interrupted, code: 'interrupted' }
        throw new CliError('Interrupted, and the copy was removed', parts)
      })
      .finally(() => shown?.bar.end())
    const { copy, migrations, ms } = rehearsal
    const isTable = output.format === 'plain' || output.format === 'table'
    const columns = isTable ? ['name', 'took', 'size', 'added'] : ['name', 'ms', 'bytes', 'addedBytes']
    const printer = rowPrinter(output, columns)
    await printer.rows(isTable ? migrations.map(readable) : migrations)
    await printer.end(() => rehearsal)
    if (!isTable) return
    printNote(
      copy === undefined
        ? 'Nothing to apply, so nothing was copied'
        : `The copy of ${formatBytes(copy.bytes)} took ${seconds(copy.ms)}, and the whole rehearsal ${seconds(ms)}; the copy was removed`,
    )
  }
}

type Measured = { name: string; ms: number; bytes: number; addedBytes: number }

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`

const readable = ({ name, ms, bytes, addedBytes }: Measured) => ({
  name,
  took: seconds(ms),
  size: formatBytes(bytes),
  added: formatBytes(addedBytes),
})
