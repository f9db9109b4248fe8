import { string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag, textArg } from '../../src/cli/flags.ts'
import { parseOutputFlags, writeJson, writeStdout } from '../../src/cli/print.ts'
import { formatNumber, progressReport } from '../../src/cli/progress.ts'

export default class DbRestore extends LocalCommand {
  static override summary = 'Restore a backup into an empty database'
  static override description =
    'The backup may be of the other kind of database, and of an older schema. Before anything is written it is read once and checked, with its audit chains. Webhooks, rollouts, deliveries and commands are stopped, so that nothing is sent twice. `svc serve` refuses the database until the restore has finished; after an interruption, repeat it.'
  static override examples = [
    'svc db restore /backups/svc-20260301T120000Z-0.1.0.backup --data-dir /var/lib/svc',
    'svc db restore /backups/svc-20260301T120000Z-0.1.0.backup.age --identity key.txt',
  ]
  static override args = { file: textArg('File that svc db backup wrote') }
  static override flags = {
    ...dataDirFlag,
    identity: string({
      description: 'File with an identity of age, for an encrypted backup',
      helpValue: 'FILE',
    }),
    'without-keys': string({
      description: 'Accept the loss of what needs this key. May be repeated',
      helpValue: 'NAME',
      multiple: true,
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(DbRestore)
    const { restore } = await import('../../daemon/backup/restore.ts')
    const progress = progressReport('Restoring', 'bytes')
    const summary = await restore({ ...flags, file: String(args.file) }, progress.report).finally(
      progress.end,
    )
    const output = parseOutputFlags(flags)
    if (output.format === 'json') return writeJson(output, summary)
    const lines = [
      `Restored ${formatNumber(summary.rows)} rows of ${summary.madeAt} (svc ${summary.version}, ${summary.source})`,
      '',
      'Stopped, so that nothing happens twice:',
      ...counts([
        [summary.webhooksPaused, 'webhooks paused', 'svc webhooks resume'],
        [summary.rolloutsHalted, 'rollouts halted', 'svc agent rollout resume'],
        [summary.promotionsEnded, 'agent versions no longer offered', 'svc agent promote'],
        [summary.deliveriesEnded, 'deliveries ended', 'svc webhooks dead'],
        [summary.commandsEnded, 'commands ended', 'svc devices commands'],
        [summary.sessionsEnded, 'sessions ended', ''],
        [summary.mailsLeft, 'mails that waited, left out', 'svc users resend'],
        [summary.eventsLeft, 'events that waited, left out', ''],
      ]),
      '',
      `Valid as they were then; end anew what was ended after ${summary.madeAt}:`,
      ...counts([
        [summary.users, 'accounts, with passwords and factors', 'svc users'],
        [summary.administrators, 'of them system administrators', 'svc users'],
        [summary.invitations, 'invitations', 'svc users'],
        [summary.recoveryCodes, 'recovery codes', 'svc users reset-mfa'],
        [summary.apiKeys, 'API keys', 'svc keys'],
        [summary.enrollmentKeys, 'enrollment keys', 'svc enroll'],
        [summary.trustPolicies, 'trust policies', 'svc trust'],
        [summary.agents, 'agents; with a token since then: enroll again', 'svc devices'],
      ]),
      '',
      'Then start svc serve, and resume what is to go on.',
    ]
    if (summary.keysLost.length > 0) {
      const again = `ACCEPT_NEW_KEYS is not needed: the database takes the keys that svc serve starts with.`
      lines.push(`Restored without ${summary.keysLost.join(', ')}. ${again}`)
    }
    await writeStdout(`${lines.join('\n')}\n`)
  }
}

/** What there is none of is left out. */
function counts(rows: readonly [count: number, what: string, command: string][]): string[] {
  const some = rows.filter(([count]) => count > 0)
  if (some.length === 0) return ['  nothing']
  const room = Math.max(...some.map(([, what]) => what.length))
  const digits = Math.max(...some.map(([count]) => formatNumber(count).length))
  return some.map(([count, what, command]) =>
    `  ${what.padEnd(room)}  ${formatNumber(count).padStart(digits)}  ${command}`.trimEnd(),
  )
}
