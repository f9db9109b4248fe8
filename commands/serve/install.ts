import { realpathSync } from 'node:fs'
import { boolean, integer, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { stepFlags } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class ServeInstall extends LocalCommand {
  static override summary = 'Install the service as a systemd service of this machine'
  static override description =
    'Makes the user, settings with mode 0640, generated secrets that root alone can read, and a unit with no more privileges than it ' +
    'needs; then starts it. Shows each step before it asks. Settings and secrets that are there stay. A package of Debian or RPM ' +
    'does the same.'
  static override examples = [
    'svc serve install --public-url https://svc.example.com --yes',
    'svc serve install --dry-run',
    'svc serve install --print',
  ]
  static override flags = {
    'public-url': string({
      description: 'Address that people and machines use (PUBLIC_URL in the settings)',
      helpValue: 'URL',
    }),
    port: integer({ description: 'Port to listen on; 3000', min: 1, max: 65535 }),
    user: string({ description: 'User to run as; svc', helpValue: 'USER' }),
    'etc-dir': string({ description: 'Directory of settings and secrets; /etc/svc', helpValue: 'DIR' }),
    'unit-dir': string({
      description: 'Directory to write the unit to; /etc/systemd/system',
      helpValue: 'DIR',
    }),
    print: boolean({ description: 'Print the unit and change nothing' }),
    ...stepFlags,
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(ServeInstall)
    const { installService } = await import('../../src/cli/service/install.ts')
    const { readSecretsFile, secretsFile } = await import('../../daemon/secrets/file.ts')
    // The program as one file is started by itself.
    const isOneFile = process.getBuiltinModule('node:sea').isSea()
    const script = isOneFile ? [] : [realpathSync(process.argv[1]!)]
    const readStoredSecrets = (dataDir: string) => readSecretsFile(secretsFile(dataDir))
    const outcome = await installService(flags, [process.execPath, ...script], readStoredSecrets)
    await printRecord(parseOutputFlags(flags), outcome, undefined, () => outcome.unit ?? '')
  }
}
