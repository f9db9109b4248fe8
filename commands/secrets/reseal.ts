import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, printRecord } from '../../src/cli/print.ts'
import { progressBar } from '../../src/cli/progress.ts'

export default class SecretsReseal extends LocalCommand {
  static override summary = 'Encrypt stored values with the current encryption key'
  static override description =
    'Second factors, secrets of webhooks and identity providers, waiting mail and everything else that APP_ENCRYPTION_KEY encrypts: ' +
    'what the former key has encrypted is encrypted anew, also while the service runs. Can be stopped and run again.'
  static override examples = ['svc secrets reseal\n1204 values encrypted with the current key']
  static override flags = { ...dataDirFlag }

  async run(): Promise<void> {
    const { flags } = await this.parse(SecretsReseal)
    const { resealValues } = await import('../../daemon/secrets/rotation.ts')
    let progress: ReturnType<typeof progressBar> | undefined
    const done = await resealValues(flags, (count, total) => {
      progress ??= progressBar('Encrypting', 'values', total)
      progress.done(count)
    }).finally(() => progress?.end())
    await printRecord(
      parseOutputFlags(flags),
      done,
      undefined,
      () => `${done.resealed} ${done.resealed === 1 ? 'value' : 'values'} encrypted with the current key\n`,
    )
    if (done.locked > 0) printNote(`${done.locked} are locked by another session: run this again`)
    if (done.unreadable > 0)
      printNote(`${done.unreadable} open with no known key, and stay: svc doctor names them`)
  }
}
