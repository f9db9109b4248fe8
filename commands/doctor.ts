import { boolean } from '@oclif/core/flags'
import { LocalCommand } from '../src/cli/base.ts'
import { printFindings, repair } from '../src/cli/doctor.ts'
import { dataDirFlag } from '../src/cli/flags.ts'
import { parseOutputFlags } from '../src/cli/print.ts'
import { withSpinner } from '../src/cli/progress.ts'

export default class Doctor extends LocalCommand {
  static override summary = 'Find what is wrong with an installation, and what mends it'
  static override description =
    'Run it on the machine of `svc serve`, with the same environment and user: it examines the data directory, the settings, the ' +
    'database, the keys, the audit chains and the queues, the running service, its public address with the certificate, and mail ' +
    'and SMS. It writes nothing, unless --fix is given. Exit 0 all is well, 1 warnings, 2 errors.'
  static override examples = [
    'svc doctor\n✓ data directory     /var/lib/svc\n! mail               Mail is not configured.\n                     Invitations and password resets reach nobody …\n                     → set SMTP_URL and MAIL_FROM …',
    'svc doctor --offline --json',
    'svc doctor --fix',
  ]
  static override flags = {
    ...dataDirFlag,
    offline: boolean({ description: 'Ask neither the running service nor other machines' }),
    fix: boolean({ description: 'Mend what can be mended automatically; shows it before it is done' }),
    yes: boolean({ char: 'y', description: 'Do not ask for confirmation' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(Doctor)
    const output = parseOutputFlags(flags)
    const { examine } = await import('../daemon/doctor/examine.ts')
    const look = () => {
      let check = ''
      const onCheck = (name: string) => {
        check = name
      }
      return withSpinner(() => `Checking: ${check}`, examine(flags, { offline: flags.offline, onCheck }))
    }
    let found = await look()
    try {
      if (flags.fix && (await repair(found.repairs, flags))) {
        await found.close()
        found = await look()
      }
    } finally {
      await found.close()
    }
    await printFindings(output, found.findings)
  }
}
