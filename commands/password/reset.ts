import { string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { resetPassword } from '../../src/cli/password.ts'
import { printRecord } from '../../src/cli/print.ts'
import { auth } from '../../src/identity/contract.ts'

export default class PasswordReset extends ApiCommand {
  static override endpoints = ['POST /auth/reset-password']
  static override summary = auth.resetPassword.summary
  static override examples = [
    'svc password reset\nLink or token of the mail ********\nNew password ********\nNew password once more ********\nPassword reset successfully',
    'svc password reset --link @link.txt --password @password.txt',
  ]
  static override flags = {
    link: string({ description: 'Link of the mail, or its token: - for standard input, @file for a file' }),
    password: string({ description: 'New password: - for standard input, @file for a file' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(PasswordReset)
    const run = this.open(flags)
    const reply = await resetPassword(run, flags)
    await printRecord(run.output, reply, auth.resetPassword.reply, ({ message }) => `${message}\n`)
  }
}
