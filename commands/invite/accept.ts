import { string as stringArg } from '@oclif/core/args'
import { boolean, string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { acceptInvitation, acceptOwnInvitation } from '../../src/cli/invitations.ts'
import { printRecord } from '../../src/cli/print.ts'
import { escapeToOneLine } from '../../src/cli/table.ts'
import { auth, users } from '../../src/identity/contract.ts'

export default class InviteAccept extends ApiCommand {
  static override endpoints = [
    'POST /users/me/invitations',
    'POST /auth/invite/preview',
    'POST /auth/accept-invite',
  ]
  static override summary = 'Accept an invitation: with its link, or with the account you are signed in to'
  static override description =
    'With the name of the organization or partner, the account you are signed in to accepts its invitation (svc invite list). Without one, a new ' +
    'account gets its first password. The link is prompted for, or read from a file: it is never an argument, since others can read those.'
  static override examples = [
    'svc invite accept --url https://svc.example.com\nLink or token ********\nNew password ********\nNew password once more ********\nSigned in to https://svc.example.com as ada@example.com, organization scope of 0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'svc invite accept "Blue Bakery"\nAccepted: you belong to Blue Bakery',
    'In a script\nsvc invite accept --invitation @link.txt --password-stdin --store file < password.txt',
  ]
  static override args = {
    tenant: stringArg({
      ignoreStdin: true,
      description: 'Organization or partner that invited the account you are signed in to: id or name',
    }),
  }
  static override flags = {
    invitation: string({ description: 'The link or its token: - for standard input, @file for a file' }),
    'password-stdin': boolean({ description: 'Read the new password from standard input' }),
    password: string({
      description: 'New password: - for standard input, @file for a file',
      exclusive: ['password-stdin'],
    }),
    store: string({
      description: 'Where to store the session [env: SVC_CREDENTIAL_STORE]',
      options: ['keychain', 'file', 'none'],
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(InviteAccept)
    if (args.tenant !== undefined) {
      const signedIn = this.open(flags)
      const accepted = await acceptOwnInvitation(signedIn, users, args.tenant)
      return printRecord(
        signedIn.output,
        accepted,
        undefined,
        () => `Accepted: you belong to ${escapeToOneLine(accepted.name)}\n`,
      )
    }
    const run = this.open(flags, { mayBeNew: true })
    const given = { ...flags, token: flags.invitation }
    const result = await acceptInvitation(run, auth.acceptInvite, given)
    if (run.output.format !== 'plain') await printRecord(run.output, result, undefined)
  }
}
