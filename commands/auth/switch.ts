import { string } from '@oclif/core/args'
import { ApiCommand } from '../../src/cli/command.ts'
import { printRecord } from '../../src/cli/print.ts'
import { switchMembership } from '../../src/cli/session.ts'

export default class AuthSwitch extends ApiCommand {
  static override endpoints = ['POST /auth/switch']
  static override summary = 'Switch to another of your memberships'
  static override description =
    'Without a name, to the one a sign-in would choose. svc whoami --json lists your memberships.'
  static override examples = [
    'svc auth switch blue-bakery\nNow in organization scope of Blue Bakery',
    'svc auth switch --json',
  ]
  static override args = {
    membership: string({ description: 'Organization or partner: id, slug or name' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(AuthSwitch)
    const run = this.open(flags)
    const result = await switchMembership(run, args.membership ?? flags.org)
    await printRecord(run.output, result, undefined, ({ scope, of }) => `Now in ${scope} scope${of}\n`)
  }
}
