import { string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { readCode, replaceTokens } from '../../src/cli/mfa.ts'
import { printRecord } from '../../src/cli/print.ts'
import { auth } from '../../src/identity/contract.ts'

export default class MfaEnable extends ApiCommand {
  static override endpoints = ['POST /auth/mfa/enable']
  static override summary = auth.enableMfa.summary
  static override examples = [
    'svc mfa enable --code 123456\nMFA enabled successfully',
    'oathtool --totp -b "$SECRET" | svc mfa enable --code -',
  ]
  static override flags = {
    code: string({
      description: 'Current code of the authenticator; - for standard input',
      helpValue: 'CODE',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(MfaEnable)
    const run = this.open(flags)
    const code = await readCode(run, flags.code, 'Code of your authenticator')
    // The setup has printed the recovery codes already.
    const { tokens, recoveryCodes: _, ...reply } = await run.client.call(auth.enableMfa, { body: { code } })
    await replaceTokens(run, tokens)
    await printRecord(run.output, reply, auth.enableMfa.reply, ({ message }) => `${message}\n`)
  }
}
