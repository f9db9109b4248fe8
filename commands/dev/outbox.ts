import { boolean, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { printLatest, printMessages } from '../../src/cli/outbox.ts'
import { parseOutputFlags } from '../../src/cli/print.ts'

export default class DevOutbox extends LocalCommand {
  static override summary = 'Show e-mail and SMS that a service without a provider for them did not send'
  static override description =
    'Reads the files in outbox/ of the data directory, newest first. They contain links and codes that sign people in.'
  static override examples = [
    'svc dev outbox\nAT                        TO               KIND            SUBJECT              LINK\n2026-03-01T12:00:00.000Z  alice@acme.test  password-reset  Reset your password  http://127.0.0.1:3000/reset-password?token=…',
    'svc dev outbox --to alice@acme.test --kind invitation --latest',
    "svc dev outbox --kind password-reset --latest --jq '.link'",
  ]
  static override flags = {
    ...dataDirFlag,
    to: string({ description: 'Only messages to this address or number', helpValue: 'EMAIL' }),
    kind: string({ description: 'Only this kind, such as invitation or sms-code', helpValue: 'KIND' }),
    latest: boolean({ description: 'Only the newest message, with its text' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(DevOutbox)
    const { dataDirOf } = await import('../../daemon/config.ts')
    const { readOutboxMessages: messagesIn } = await import('../../daemon/integrations/outbox.ts')
    const messages = await messagesIn(dataDirOf(flags))
    await (flags.latest ? printLatest : printMessages)(parseOutputFlags(flags), messages, flags)
  }
}
