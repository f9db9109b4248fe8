import { boolean, integer, string } from '@oclif/core/flags'
import { LocalCommand } from '../src/cli/base.ts'
import { checkFindingOutput, printFindings, repair } from '../src/cli/doctor.ts'
import { dataDirFlag } from '../src/cli/flags.ts'
import { parseOutputFlags } from '../src/cli/print.ts'
import { withSpinner } from '../src/cli/progress.ts'

export default class Doctor extends LocalCommand {
  static override summary = 'Find what is wrong with an installation, and what mends it'
  static override description =
    'Run it on the machine of `svc serve`, with the same environment and user: it examines the data directory, the settings, the ' +
    'database, the keys, the audit chains and the queues, the running service, its public address with the certificate, and mail ' +
    'and SMS. It changes nothing, unless --fix is given. Exit 0 all is well, 1 warnings, 2 errors.'
  static override examples = [
    'svc doctor\n✓ data directory     /var/lib/svc\n! mail               Mail is not configured.\n                     Invitations and password resets reach nobody …\n                     → set SMTP_URL and MAIL_FROM …',
    'svc doctor --offline --json',
    'svc doctor --fix',
  ]
  static override flags = {
    ...dataDirFlag,
    host: string({ description: 'As for svc serve [env: HOST]', helpValue: 'HOST' }),
    port: integer({ description: 'As for svc serve [env: PORT]', helpValue: 'PORT', min: 0, max: 65_535 }),
    offline: boolean({ description: 'Ask no machine but that of the database, and not the service' }),
    fix: boolean({ description: 'Mend what can be mended automatically; shows it before it is done' }),
    yes: boolean({ char: 'y', description: 'Do not ask for confirmation' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(Doctor)
    const output = parseOutputFlags(flags)
    checkFindingOutput(output)
    const { examine } = await import('../daemon/doctor/checks.ts')
    const look = () => {
      let check = ''
      const onCheck = (name: string) => {
        check = name
      }
      return withSpinner(() => `Checking: ${check}`, examine(flags, { offline: flags.offline, onCheck }))
    }
    const first = await look()
    let { findings } = first
    if (flags.fix && (await repair(first.repairs, flags))) findings = (await look()).findings
    await printFindings(output, findings)
  }
}
