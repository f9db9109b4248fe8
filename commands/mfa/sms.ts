import { string as argument } from '@oclif/core/args'
import { string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { formatRecoveryCodes, readCode, replaceTokens } from '../../src/cli/mfa.ts'
import { printNote, printRecord } from '../../src/cli/print.ts'
import { auth } from '../../src/identity/contract.ts'

export default class MfaSms extends ApiCommand {
  static override endpoints = [
    'POST /auth/phone/verify',
    'POST /auth/phone/confirm',
    'POST /auth/mfa/sms/enable',
  ]
  static override summary = auth.enableSms.summary
  static override description =
    'Sends a code to the number and prompts for it. In a script: run it without --code, then again with it.'
  static override examples = [
    'svc mfa sms +4915112345678\nA code was sent to +4915112345678\nCode of the SMS 123456\nSMS MFA enabled successfully',
    'svc mfa sms +4915112345678 --code 123456 --json',
  ]
  static override args = {
    number: argument({ description: 'Phone number, such as +4915112345678', required: true }),
  }
  static override flags = {
    code: string({ description: 'Code of the SMS; - for standard input', helpValue: 'CODE' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(MfaSms)
    const run = this.open(flags)
    const phoneNumber = args.number
    if (flags.code === undefined) {
      const sent = await run.client.call(auth.verifyPhone, { body: { phoneNumber } })
      printNote(`A code was sent to ${phoneNumber}`)
      if (!run.interactive) return printRecord(run.output, sent, auth.verifyPhone.reply, () => '')
    }
    const code = await readCode(run, flags.code, 'Code of the SMS')
    await run.client.call(auth.confirmPhone, { body: { phoneNumber, code } })
    const { tokens, ...reply } = await run.client.call(auth.enableSms, { body: {} })
    await replaceTokens(run, tokens)
    const page = () => `${reply.message}\n\n${formatRecoveryCodes(reply)}`
    await printRecord(run.output, reply, auth.enableSms.reply, page)
  }
}
