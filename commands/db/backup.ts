import { boolean, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, writeJson, writeStdout } from '../../src/cli/print.ts'
import { formatBytes, formatNumber, progressReport } from '../../src/cli/progress.ts'

export default class DbBackup extends LocalCommand {
  static override summary = 'Write a backup of the database to one file'
  static override description =
    'Works on the database that `svc serve` would use, also while it runs. The file can be restored to SQLite and to Postgres with `svc db restore`, which needs the keys of the service as well: keep secrets.json or the keys of the environment, or add --with-secrets.'
  static override examples = [
    'svc db backup --out /backups\nWrote /backups/svc-20260301T120000Z-0.1.0.backup: 18 204 rows, 2 files, 3.1 MiB',
    'svc db backup --out /backups --with-secrets --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p',
  ]
  static override flags = {
    ...dataDirFlag,
    out: string({
      description: 'File to write, or a directory: there it is named by date and version',
      helpValue: 'FILE|DIR',
      required: true,
    }),
    recipient: string({
      description: 'Encrypt to this public key in the age format. May be repeated',
      helpValue: 'age1…',
      multiple: true,
    }),
    'with-secrets': boolean({ description: 'Include secrets.json; needs --recipient' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbBackup)
    const { backUp } = await import('../../daemon/backup/backup.ts')
    const progress = progressReport('Backing up', 'rows')
    const summary = await backUp(flags, progress.report).finally(progress.end)
    const output = parseOutputFlags(flags)
    if (output.format === 'json') return writeJson(output, summary)
    const { file, rows, files, bytes } = summary
    const parts = [
      `${formatNumber(rows)} rows`,
      `${files} ${files === 1 ? 'file' : 'files'}`,
      formatBytes(bytes),
    ]
    await writeStdout(`Wrote ${file}: ${parts.join(', ')}\n`)
  }
}
