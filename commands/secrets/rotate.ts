import { boolean } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'
import { parseSecretName, secretNameArg } from '../../src/cli/secret-names.ts'

export default class SecretsRotate extends LocalCommand {
  static override summary = 'Generate a new secret; the former one still opens what it made'
  static override description =
    'For secrets in secrets.json of the data directory. A running service takes the new one within seconds, and uses it once all its ' +
    'processes know it; svc secrets list shows what still needs the former one, svc secrets retire removes it. A METRICS_TOKEN that ' +
    'does not exist yet is generated. man svc-serve has the steps for secrets in the environment.'
  static override examples = [
    'svc secrets rotate APP_ENCRYPTION_KEY\nsvc secrets list\nsvc secrets reseal\nsvc secrets retire APP_ENCRYPTION_KEY',
  ]
  static override args = { name: secretNameArg }
  static override flags = {
    ...dataDirFlag,
    'dry-run': boolean({ description: 'Print what would be done, and change nothing' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(SecretsRotate)
    const { rotateSecret } = await import('../../daemon/secrets/rotation.ts')
    const name = parseSecretName(args.name)
    const dryRun = flags['dry-run']
    const done = await rotateSecret(flags, name, { dryRun })
    await printRecord(parseOutputFlags(flags), { name, ...done, dryRun }, undefined, () => said(name, done))
  }
}

function said(
  name: string,
  { id, file, hasFormer }: { id: string | null; file: string; hasFormer: boolean },
): string {
  if (id === null)
    return hasFormer
      ? `${name} would be new in ${file}, and the former one would be kept beside it\n`
      : `${name} would be new in ${file}: it is the first one\n`
  const former = hasFormer ? ', and the former one still works' : ': it is the first one'
  return `${name} is new in ${file}${former}. A running service takes it within seconds.\n`
}
