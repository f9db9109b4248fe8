import { string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { checkFlagsOfSavedPlan, planFlags } from '../../src/cli/config/flags.ts'
import { confirmFlags, textArg } from '../../src/cli/flags.ts'

export default class ConfigApply extends ApiCommand {
  static override endpoints = ['POST /config/apply']
  static override summary = 'Apply files in one transaction: all that a plan says, or nothing'
  static override description =
    'Plans, shows the plan and asks before it applies. What has changed since the plan was made is a conflict (exit 6), and nothing is applied. Every change has the audit entry that the single command would leave, with the id of the apply.'
  static override examples = [
    'svc config apply production.yaml --yes\nsites\n  + blue-bakery / Main Office\nSet default: 1 to create\nApplied as 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55: 1 created',
    'svc config apply config/ --set production --prune --prune-limit 12 --revision "$GIT_COMMIT" --yes',
    'svc config apply --plan plan.json --yes',
  ]
  static override args = { file: textArg('Files and folders; - for standard input', false, undefined, true) }
  static override flags = {
    ...planFlags,
    ...confirmFlags,
    plan: string({ description: 'Apply this saved plan', helpValue: 'FILE' }),
    revision: string({
      description: 'What the files are a revision of, such as a commit, for the audit log',
      helpValue: 'TEXT',
    }),
  }

  async run(): Promise<void> {
    const { args, flags, metadata } = await this.parse(ConfigApply)
    const named = Object.keys(flags).filter((name) => !metadata.flags[name]?.setFromDefault)
    if (flags.plan !== undefined) checkFlagsOfSavedPlan(named)
    const { applyFiles } = await import('../../src/cli/config/run.ts')
    const { yes } = flags as { yes?: boolean }
    await applyFiles(this.open(flags), (args.file as string[] | undefined) ?? [], { ...flags, yes })
  }
}
