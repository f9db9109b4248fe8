import { string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag, textArg } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord, writeStdout } from '../../src/cli/print.ts'
import { formatNumber, progressReport } from '../../src/cli/progress.ts'

type RevocableKind = typeof import('../../daemon/backup/restored-access.ts')['revocableKinds'][number]

/** Written again because help loads nothing of the daemon; the compiler compares the two. */
const revocable: Record<RevocableKind, true> = {
  agents: true,
  'api-keys': true,
  'enrollment-keys': true,
  invitations: true,
  'recovery-codes': true,
  'sso-links': true,
  'sso-providers': true,
  'trust-policies': true,
}

export default class DbRestore extends LocalCommand {
  static override summary = 'Restore a backup into an empty database'
  static override description =
    'The backup may be of the other kind of database, and of an older schema. Before anything is written it is read once and checked, with its audit chains. Webhooks, rollouts, deliveries and commands are stopped, so that nothing is sent twice. `svc serve` refuses the database until the restore has finished; after an interruption, repeat it.'
  static override examples = [
    'svc db restore /backups/svc-20260301T120000.482Z-0.1.0.backup --data-dir /var/lib/svc',
    'svc db restore /backups/svc-20260301T120000.482Z-0.1.0.backup.age --identity key.txt',
    'svc db restore s3://backups/svc/svc-20260301T120000.482Z-0.1.0.backup',
    'svc db restore /backups/svc-20260301T120000.482Z-0.1.0.backup --revoke api-keys --revoke enrollment-keys',
  ]
  static override args = { file: textArg('File or s3:// URL that svc db backup wrote') }
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
    revoke: string({
      description: 'End all that the backup brings back of this kind. May be repeated',
      helpValue: 'KIND',
      multiple: true,
      options: Object.keys(revocable),
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(DbRestore)
    const output = parseOutputFlags(flags)
    const { restore } = await import('../../daemon/backup/restore.ts')
    const progress = progressReport('Restoring', 'bytes')
    const summary = await restore({ ...flags, file: String(args.file) }, progress.report).finally(
      progress.end,
    )
    if (output.format === 'id') return writeStdout(`${summary.file}\n`)
    await printRecord(output, summary, undefined, report)
  }
}

type Restore = typeof import('../../daemon/backup/restore.ts')
type RestoreSummary = Awaited<ReturnType<Restore['restore']>>

/** Names of each kind that are shown; --json has all. */
const maxNamed = 5

function report(summary: RestoreSummary): string {
  const { revived } = summary
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
      [summary.administrators, 'of them system administrators', 'svc users', revived.administrators],
      [summary.memberships, 'memberships, with the roles of then', 'svc users', revived.memberships],
      [summary.invitations, 'invitations', 'svc users', revived.invitations],
      [summary.recoveryCodes, 'recovery codes', 'svc users reset-mfa', revived['recovery-codes']],
      [summary.apiKeys, 'API keys', 'svc keys revoke', revived['api-keys']],
      [summary.enrollmentKeys, 'enrollment keys', 'svc enroll', revived['enrollment-keys']],
      [summary.ssoProviders, 'SSO providers', 'svc sso', revived['sso-providers']],
      [summary.ssoLinks, 'links to accounts at them', 'svc sso unlink', revived['sso-links']],
      [summary.trustPolicies, 'trust policies', 'svc trust', revived['trust-policies']],
      [summary.agents, 'agents, with the tokens of then', 'svc devices', revived.agents],
    ]),
    '',
    ...summary.entriesLost.map(
      ({ chain, from, to }) =>
        `Audit chain ${chain}: entries ${from} to ${to} are lost, which a signed note says.`,
    ),
    ...(summary.revoked.length > 0 ? [`Revoked: ${summary.revoked.join(', ')}.`] : []),
    'Then start svc serve, and resume what is to go on.',
  ]
  if (!summary.isStated) {
    lines.push('Not signed: without AUDIT_SIGNING_KEY nothing explains the lost entries to auditors.')
  }
  if (summary.keysLost.length > 0) {
    const again = `ACCEPT_NEW_KEYS is not needed: the database takes the keys that svc serve starts with.`
    lines.push(`Restored without ${summary.keysLost.join(', ')}. ${again}`)
  }
  return `${lines.join('\n')}\n`
}

type Count = [count: number, what: string, command: string, named?: readonly { name: string }[]]

/** What there is none of is left out. */
function counts(rows: readonly Count[]): string[] {
  const some = rows.filter(([count]) => count > 0)
  if (some.length === 0) return ['  nothing']
  const room = Math.max(...some.map(([, what]) => what.length))
  const digits = Math.max(...some.map(([count]) => formatNumber(count).length))
  return some.flatMap(([count, what, command, named = []]) => [
    `  ${what.padEnd(room)}  ${formatNumber(count).padStart(digits)}  ${command}`.trimEnd(),
    ...named.slice(0, maxNamed).map(({ name }) => `    ${name}`),
    ...(named.length > maxNamed ? [`    and ${formatNumber(named.length - maxNamed)} more: --json`] : []),
  ])
}
