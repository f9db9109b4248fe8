import { boolean } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag, textArg } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class DbResetMfa extends LocalCommand {
  static override summary =
    'Remove the second factor of a system administrator that no key opens, or that is lost'
  static override description =
    'For a database that was restored without its APP_ENCRYPTION_KEY. Works on the database itself, with the keys that `svc serve` would use, and is recorded in the audit log. Refused while the factor can be used: another system administrator removes that one with svc users reset-mfa. Where there is none, --lost removes it too.'
  static override examples = [
    'svc db reset-mfa admin@example.com --data-dir /var/lib/svc\nadmin@example.com signs in with the password alone, and then sets up a new factor',
    'The only system administrator has lost the authenticator and the recovery codes\nsvc db reset-mfa admin@example.com --lost',
  ]
  static override args = { email: textArg('E-mail address of the administrator') }
  static override flags = {
    ...dataDirFlag,
    lost: boolean({
      description:
        'Although it can be used: its owner has lost it, and no other system administrator can help',
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(DbResetMfa)
    const output = parseOutputFlags(flags)
    const { resetFactor } = await import('../../daemon/factor-reset.ts')
    const done = await resetFactor(String(args.email), flags)
    await printRecord(
      output,
      done,
      undefined,
      ({ email }) => `${email} signs in with the password alone, and then sets up a new factor\n`,
    )
  }
}
