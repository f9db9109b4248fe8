import { boolean } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, printRecord } from '../../src/cli/print.ts'
import { parseSecretName, secretNameArg } from '../../src/cli/secret-names.ts'

export default class SecretsRetire extends LocalCommand {
  static override summary = 'Remove a former secret, once nothing needs it'
  static override description =
    'Refuses while something needs it, and says what: processes that do not know the new one, values that svc secrets reseal encrypts anew, tokens that expire, enrollment keys or recovery codes from before. It says since when the secret is the former one, and until when it is needed, where that is known.'
  static override examples = [
    'svc secrets retire JWT_SECRET\nRemoved the former JWT_SECRET, replaced on 2026-03-01T12:00:00.000Z',
  ]
  static override args = { name: secretNameArg }
  static override flags = {
    ...dataDirFlag,
    force: boolean({ description: 'Although something needs it, which stops working' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(SecretsRetire)
    const { retireSecret } = await import('../../daemon/secrets/rotation.ts')
    const name = parseSecretName(args.name)
    const done = await retireSecret(flags, name, { force: flags.force, now: new Date().toISOString() })
    if (done.neededBy !== null) printNote(`These stop working: ${done.neededBy}`)
    const former = `the former ${name}${done.formerSince === null ? '' : `, replaced on ${done.formerSince}`}`
    await printRecord(parseOutputFlags(flags), { name, ...done }, undefined, () =>
      done.removed
        ? `Removed ${former}\n`
        : `Nothing needs ${former}: remove ${name}_PREVIOUS from the environment of the service\n`,
    )
  }
}
