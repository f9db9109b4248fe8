import { ApiCommand } from '../../src/cli/command.ts'
import { printRecord } from '../../src/cli/print.ts'
import { status } from '../../src/cli/session.ts'

export default class AuthStatus extends ApiCommand {
  static override summary = 'Show who is signed in, until when, and where the credential is stored'
  static override examples = [
    'svc auth status\nURL:                      https://svc.example.com\nContext:                  svc.example.com\nScope:                    system\nAccess token expires at:  2026-01-31T12:15:00.000Z\nRenewed automatically:    yes\nCredential:               Secret Service of this machine, entry "svc" / "svc.example.com"\n\nUser\n  Email:  admin@example.com\n\nMFA\n  Enabled:      yes\n  Method:       totp\n  Verified:     yes\n  Verified at:  2026-01-31T09:12:00.000Z\n  Age:          3 h',
    'svc auth status --json',
  ]

  async run(): Promise<void> {
    const { flags } = await this.parse(AuthStatus)
    const run = this.open(flags)
    await printRecord(run.output, await status(run), undefined)
  }
}
