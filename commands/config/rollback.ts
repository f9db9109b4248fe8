import { boolean, string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { partnerFlag, planFlags } from '../../src/cli/config/flags.ts'
import { confirmFlags, textArg } from '../../src/cli/flags.ts'

export default class ConfigRollback extends ApiCommand {
  static override endpoints = ['POST /config/applies/:id/plan', 'POST /config/applies/:id/rollback']
  static override summary = 'Roll an apply back in one transaction, unless later changes stand on it'
  static override description =
    'Shows the apply backwards and asks before it does it: what it changed gets the values from before, what it deleted is made again, what it took over belongs to no set, and with --prune what it made is deleted. Secrets are not kept: what cannot be brought back is said. When something of it was changed since, the rollback is refused (exit 6) and says what. A rollback is an apply itself, and can be rolled back.'
  static override examples = [
    'svc config rollback 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55 --prune\nsites\n  - blue-bakery / Main Office\nSet default: 1 to delete\nRolled back as 0197c1d0-11c4-7e02-9a4f-5b8d0c6e7f10: 1 deleted',
    'svc config rollback 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55 --dry-run',
  ]
  static override args = { apply: textArg('Id of the apply: svc config history lists them') }
  static override flags = {
    ...confirmFlags,
    'dry-run': boolean({ description: 'Show what it would do, and do nothing' }),
    ...partnerFlag,
    prune: boolean({ description: 'Delete what the apply made' }),
    'prune-limit': planFlags['prune-limit'],
    revision: string({ description: 'Why, such as a commit, for the audit log', helpValue: 'TEXT' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(ConfigRollback)
    const { rollBack } = await import('../../src/cli/config/run.ts')
    const { yes } = flags as { yes?: boolean }
    await rollBack(this.open(flags), args.apply as string, { ...flags, yes })
  }
}
