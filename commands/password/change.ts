import { string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { changePassword } from '../../src/cli/password.ts'
import { printRecord } from '../../src/cli/print.ts'
import { auth } from '../../src/identity/contract.ts'

export default class PasswordChange extends ApiCommand {
  static override endpoints = ['POST /auth/change-password']
  static override summary = auth.changePassword.summary
  static override examples = [
    'svc password change\nCurrent password ********\nNew password ********\nNew password once more ********\nPassword changed successfully',
    'In a script, one password per line\nsvc password change --current-password - --new-password - < passwords.txt',
  ]
  static override flags = {
    'current-password': string({ description: 'Current password: - for standard input, @file for a file' }),
    'new-password': string({ description: 'New password: - for standard input, @file for a file' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(PasswordChange)
    const run = this.open(flags)
    const reply = await changePassword(run, flags)
    await printRecord(run.output, reply, auth.changePassword.reply, ({ message }) => `${message}\n`)
  }
}
