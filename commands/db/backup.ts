import { boolean, integer, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { exitCodes } from '../../src/cli/exit-codes.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, printRecord, writeStdout } from '../../src/cli/print.ts'
import { formatNumber, progressReport } from '../../src/cli/progress.ts'
import { formatBytes } from '../../src/core/byte-size.ts'

export default class DbBackup extends LocalCommand {
  static override summary = 'Write a backup of the database to one file or object'
  static override description =
    'Works on the database that `svc serve` would use, also while it runs. The file can be restored to SQLite and to Postgres with `svc db restore`, which needs the keys of the service as well: keep secrets.json or the keys of the environment, or add --with-secrets. Object storage is reached as BACKUP_S3_ENDPOINT and the other BACKUP_S3_ variables say; svc-serve(8).'
  static override examples = [
    'svc db backup --out /backups\nWrote /backups/svc-20260301T120000.482Z-0.1.0.backup: 18 204 rows, 2 files, 3.1 MiB',
    'svc db backup --out /backups --with-secrets --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p',
    'svc db backup --out s3://backups/svc --limit-rate 20M --keep 30',
  ]
  static override flags = {
    ...dataDirFlag,
    out: string({
      description:
        'File to write, or a directory or s3://BUCKET/PREFIX: there it is named by date and version',
      helpValue: 'FILE|DIR|URL',
      required: true,
    }),
    recipient: string({
      description: 'Encrypt to this public key in the age format. May be repeated',
      helpValue: 'age1…',
      multiple: true,
    }),
    'with-secrets': boolean({ description: 'Include secrets.json; needs --recipient' }),
    'limit-rate': string({
      description: 'Write at most so many bytes per second, such as 500K or 20M',
      helpValue: 'RATE',
    }),
    keep: integer({
      description: 'Afterwards remove backups of this installation beyond the newest N of --out',
      helpValue: 'N',
      min: 1,
    }),
    'keep-days': integer({
      description: 'Afterwards remove those older than D days, but never the newest',
      helpValue: 'D',
      min: 1,
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbBackup)
    const output = parseOutputFlags(flags)
    const { backUp } = await import('../../daemon/backup/backup.ts')
    const { endWithParent } = await import('../../daemon/backup/child-process.ts')
    endWithParent(() => process.exit(exitCodes.interrupted))
    const progress = progressReport('Backing up', 'rows')
    const summary = await backUp(flags, progress.report).finally(progress.end)
    for (const text of summary.warnings) printNote(text)
    if (output.format === 'id') return writeStdout(`${summary.file}\n`)
    await printRecord(output, summary, undefined, ({ file, rows, files, bytes, removed }) => {
      const parts = [
        `${formatNumber(rows)} rows`,
        `${files} ${files === 1 ? 'file' : 'files'}`,
        formatBytes(bytes),
      ]
      const lines = [`Wrote ${file}: ${parts.join(', ')}`, ...removed.map((one) => `Removed ${one}`)]
      return `${lines.join('\n')}\n`
    })
  }
}
