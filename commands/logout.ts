import { ApiCommand } from '../src/cli/base.ts'
import { printNote, printRecord } from '../src/cli/print.ts'
import { logout } from '../src/cli/session.ts'

export default class Logout extends ApiCommand {
  static override summary =
    'Sign out everywhere: revoke every session of the account and remove the stored one'
  static override examples = [
    'svc logout\nSigned out of https://svc.example.com: the service refuses the old token, and nothing is stored any more',
  ]

  async run(): Promise<void> {
    const { flags } = await this.parse(Logout)
    const run = this.open(flags)
    const result = await logout(run)
    const url = run.settings.url.value
    if (run.output.format !== 'plain') return printRecord(run.output, { url, ...result }, undefined)
    if (!result.signedOut) return printNote(`Not signed in to ${url}: nothing to do`)
    const revoked = result.revoked
      ? 'the service refuses the old token'
      : 'the service still accepts the old token'
    printNote(`Signed out of ${url}: ${revoked}${result.removed ? ', and nothing is stored any more' : ''}`)
  }
}
