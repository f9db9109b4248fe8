import { string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { textArg } from '../../src/cli/flags.ts'
import { parseOutputFlags } from '../../src/cli/print.ts'
import { signRelease } from '../../src/cli/sign-release.ts'

export default class AgentSignRelease extends LocalCommand {
  static override summary = 'Sign a release of the agent, without a service'
  static override description =
    'Writes release-manifest.json and release-manifest.json.sig for the files in a folder that are named svc-agent-<platform>-<arch>: publish them with the files, or put the folder into AGENT_BINARY_DIR under its version. Prints the setting with which the service trusts the key; svc-agent(7) has the format.'
  static override examples = [
    'svc agent sign-release dist/1.2.0 --version 1.2.0 --new-key release.key\nRELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS=AQjB0rW7kR6vNn0gQ3o2bq5Jx9m8Zt4cYpW1sHuLdEc=',
    'svc agent sign-release dist/1.3.0 --version 1.3.0 --key-file release.key --min-from 1.2.0',
    'svc agent sign-release dist/1.4.0 --version 1.4.0 --key-file release.key --new-key next.key --json',
  ]
  static override args = { dir: textArg('Folder of the files') }
  static override flags = {
    version: string({ description: 'Version of the files', helpValue: 'VERSION', required: true }),
    'key-file': string({
      description: 'Ed25519 private key in PEM to sign with; others must not be able to read it',
      helpValue: 'FILE',
    }),
    'min-from': string({
      description: 'Oldest version that may update to this one directly; any by default',
      helpValue: 'VERSION',
    }),
    'minimum-version': string({
      description:
        'Lowest version that an agent may install after this one, whatever it is offered; none by default',
      helpValue: 'VERSION',
    }),
    'new-key': string({
      description:
        'Key that later releases may be signed with, created if the file does not exist; without --key-file it signs this release',
      helpValue: 'FILE',
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(AgentSignRelease)
    await signRelease(parseOutputFlags(flags), args.dir as string, flags)
  }
}
