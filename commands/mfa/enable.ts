import { string } from '@oclif/core/flags'
import { askText, secretFrom } from '../../src/cli/ask.ts'
import { ApiCommand } from '../../src/cli/base.ts'
import { usage } from '../../src/cli/exit.ts'
import { printRecord, say } from '../../src/cli/print.ts'
import { keepTokens } from '../../src/cli/session.ts'
import { auth } from '../../src/identity/contract.ts'

export default class MfaEnable extends ApiCommand {
  static override summary = auth.enableMfa.summary
  static override examples = [
    'svc mfa enable --code 123456\nMFA enabled',
    'oathtool --totp -b "$SECRET" | svc mfa enable --code -',
  ]
  static override flags = {
    code: string({
      description: 'Code the authenticator shows now; - for standard input',
      helpValue: 'CODE',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(MfaEnable)
    const run = this.open(flags)
    if (flags.code === undefined && !run.attended) throw usage('Missing --code')
    const given = flags.code ?? (await askText('Code of your authenticator'))
    const code = given === '-' ? await secretFrom('-', 'the code') : given
    const { tokens, ...reply } = await run.client.call(auth.enableMfa, { body: { code: code.trim() } })
    const kept = await keepTokens(run, tokens)
    await printRecord(run.output, reply, auth.enableMfa.reply, () => `${reply.message}\n`)
    if (!kept) say('Every other session has ended, the token in SVC_TOKEN too: sign in again')
  }
}
