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
    const counted = (n: number, one: string, many = `${one}s`) => `${formatNumber(n)} ${n === 1 ? one : many}`
    const lines = [
      `Restored ${counted(summary.rows, 'row')} of ${summary.madeAt} (svc ${summary.version}, ${summary.source})`,
      '',
      `Stopped:     ${counted(summary.webhooksPaused, 'webhook')}, ${counted(summary.rolloutsHalted, 'rollout')}, ${counted(summary.promotionsEnded, 'agent version')}; ${counted(summary.deliveriesEnded, 'delivery', 'deliveries')} and ${counted(summary.commandsEnded, 'command')} not sent again; ${counted(summary.sessionsEnded, 'session')} ended`,
      `Valid again: ${counted(summary.users, 'user')} (${counted(summary.administrators, 'administrator')}), ${counted(summary.invitations, 'invitation')}, ${counted(summary.recoveryCodes, 'recovery code')}, ${counted(summary.apiKeys, 'API key')}, ${counted(summary.enrollmentKeys, 'enrollment key')}, ${counted(summary.trustPolicies, 'trust policy', 'trust policies')}, ${counted(summary.agents, 'agent')}`,
      '',
      `What was ended after ${summary.madeAt} is valid again: end it anew (svc users, svc keys, svc enroll, svc trust).`,
      'Then start svc serve, and resume what is to go on: svc webhooks resume, svc agent rollout resume.',
    ]
    if (summary.keysLost.length > 0) {
      const again = `ACCEPT_NEW_KEYS is not needed: the database takes the keys that svc serve starts with.`
      lines.push(`Restored without ${summary.keysLost.join(', ')}. ${again}`)
    }
    await writeStdout(`${lines.join('\n')}\n`)
  }
}
