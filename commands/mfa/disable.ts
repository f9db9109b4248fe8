import { string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { readCode, replaceTokens } from '../../src/cli/mfa.ts'
import { printRecord } from '../../src/cli/print.ts'
import { auth } from '../../src/identity/contract.ts'

export default class MfaDisable extends ApiCommand {
  static override endpoints = ['POST /auth/mfa/disable']
  static override summary = auth.disableMfa.summary
  static override examples = [
    'svc mfa disable --code 123456\nMFA disabled successfully',
    'With a recovery code, when the authenticator is lost\nsvc mfa disable --code ABCD-2345',
  ]
  static override flags = {
    code: string({
      description: 'Current code, or a recovery code; - for standard input',
      helpValue: 'CODE',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(MfaDisable)
    const run = this.open(flags)
    const code = await readCode(run, flags.code, 'Code of your authenticator, or a recovery code')
    const { tokens, ...reply } = await run.client.call(auth.disableMfa, { body: { code } })
    await replaceTokens(run, tokens)
    await printRecord(run.output, reply, auth.disableMfa.reply, ({ message }) => `${message}\n`)
  }
}
