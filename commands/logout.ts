import { boolean } from '@oclif/core/flags'
import { ApiCommand } from '../src/cli/command.ts'
import { printNote, printRecord } from '../src/cli/print.ts'
import { logout } from '../src/cli/session.ts'

export default class Logout extends ApiCommand {
  static override endpoints = ['POST /auth/logout']
  static override summary =
    'Sign out: revoke this session, or every session of the account, and remove the stored one'
  static override examples = [
    'svc logout\nSigned out of https://svc.example.com: the service refuses the old token, and nothing is stored any more',
    'After a laptop was lost\nsvc logout --everywhere',
  ]
  static override flags = {
    everywhere: boolean({
      description: 'Revoke every session of the account, on all machines and in browsers',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(Logout)
    const run = this.open(flags)
    const result = await logout(run, flags.everywhere === true)
    const url = run.settings.url.value
    if (run.output.format !== 'plain') return printRecord(run.output, { url, ...result }, undefined)
    if (!result.signedOut) return printNote(`Not signed in to ${url}: nothing to do`)
    const revoked = result.revoked
      ? 'the service refuses the old token'
      : 'the service still accepts the old token'
    const scope = flags.everywhere ? ' everywhere' : ''
    printNote(
      `Signed out of ${url}${scope}: ${revoked}${result.removed ? ', and nothing is stored any more' : ''}`,
    )
  }
}
