import { boolean, string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { decideDeviceLogin } from '../../src/cli/device-login.ts'
import { printRecord } from '../../src/cli/print.ts'
import { escapeToOneLine } from '../../src/cli/table.ts'

export default class AuthApprove extends ApiCommand {
  static override endpoints = ['POST /auth/device/preview', 'POST /auth/device/decision']
  static override summary = 'Approve the sign-in of another terminal, as the page of svc login --device does'
  static override description =
    'That terminal acts as you then, in the membership of this session and for as long. The code is prompted for, or read from a file: never an argument. Needs a sign-in within the last 10 minutes.'
  static override examples = [
    'svc auth approve\nCode that the other terminal shows WDJB-MJHT\nA terminal at 203.0.113.7, which calls itself "svc 0.1.0 on web-1", wants to act as you. Approve? Yes\nApproved: svc 0.1.0 on web-1 is signed in',
    'svc auth approve --deny',
    'In a script\nsvc auth approve --user-code @code.txt --yes',
  ]
  static override flags = {
    'user-code': string({ description: 'The code: - for standard input, @file for a file', helpValue: '-' }),
    deny: boolean({ description: 'Deny it instead' }),
    yes: boolean({ char: 'y', description: 'Do not ask' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AuthApprove)
    const run = this.open(flags)
    const result = await decideDeviceLogin(run, flags)
    await printRecord(run.output, result, undefined, ({ decision, client }) =>
      decision === 'approve'
        ? `Approved: ${escapeToOneLine(client)} is signed in\n`
        : `Denied: ${escapeToOneLine(client)} is not signed in\n`,
    )
  }
}
