import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag, textArg } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class DbResetMfa extends LocalCommand {
  static override summary = 'Remove the second factor of a system administrator that no key opens'
  static override description =
    'For a database that was restored without its APP_ENCRYPTION_KEY. Works on the database itself, with the keys that `svc serve` would use, and is recorded in the audit log. Refused while the factor can be used: svc users reset-mfa is for that.'
  static override examples = [
    'svc db reset-mfa admin@example.com --data-dir /var/lib/svc\nadmin@example.com signs in with the password alone, and then sets up a new factor',
  ]
  static override args = { email: textArg('E-mail address of the administrator') }
  static override flags = { ...dataDirFlag }

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
