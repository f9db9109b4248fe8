import { string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { checkFindingOutput, printFindings } from '../../src/cli/doctor.ts'
import { CliError, exitCodes, usageError } from '../../src/cli/exit-codes.ts'
import { dataDirFlag, textArg } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote } from '../../src/cli/print.ts'
import { progressReport } from '../../src/cli/progress.ts'

/** Of a terminal that is common, also where there is none. */
const width = 80

export default class DbDrill extends LocalCommand {
  static override summary = 'Restore a backup into a scratch database, and examine it'
  static override description =
    'Shows that a backup can be restored before it has to be: takes the newest one of a directory or s3://BUCKET/PREFIX, or the one that is named, ' +
    'restores it, compares every table with the archive, verifies all audit chains, examines the result as svc doctor does, and removes it. ' +
    'On Postgres the scratch database is one of the same server, for which the role needs CREATEDB. Exit 0 all is well, 1 warnings, 2 errors. ' +
    'An encrypted backup without an --identity that can be read is a usage error (2), which is not recorded as a drill.'
  static override examples = [
    'svc db drill /backups\n✓ backup           svc-20260301T120000.482Z-0.1.0.backup, 3.1 MiB\n✓ restore          18204 rows restored\n…\n\nAll is well',
    'svc db drill s3://backups/svc --identity key.txt --json',
  ]
  static override args = {
    from: textArg('A backup, or where backups are; by default BACKUP_TARGET', false),
  }
  static override flags = {
    ...dataDirFlag,
    identity: string({
      description: 'File with an identity of age, for an encrypted backup',
      helpValue: 'FILE',
    }),
    scratch: string({
      description: 'Where to restore an SQLite database; twice its size has to be free',
      helpValue: 'DIR',
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(DbDrill)
    const output = parseOutputFlags(flags)
    checkFindingOutput(output)
    const { endWithParent } = await import('../../daemon/backup/child-process.ts')
    const { drill } = await import('../../daemon/backup/drill.ts')
    const { IdentityError } = await import('../../daemon/backup/age.ts')
    const interrupted = this.abortOnSignals()
    endWithParent(() => interrupted.abort())
    const { signal } = interrupted
    const progress = progressReport('Restoring', 'bytes')
    const { findings, ...report } = await drill(
      { ...flags, from: args.from as string | undefined },
      { signal, onProgress: progress.report, note: printNote },
    )
      .catch((error: unknown) => {
        if (error instanceof IdentityError) throw usageError(error.message)
        if (!signal.aborted) throw error
        const parts = { exit: exitCodes.interrupted, code: 'interrupted' }
        throw new CliError('Interrupted, and the scratch database was removed', parts)
      })
      .finally(progress.end)
    await printFindings(output, findings, {
      more: report,
      width: Math.min(process.stdout.columns ?? width, width),
    })
  }
}
