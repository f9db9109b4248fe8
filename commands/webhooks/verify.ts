import { integer, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { textArg } from '../../src/cli/flags.ts'
import { parseOutputFlags } from '../../src/cli/print.ts'
import { verifyDelivery } from '../../src/cli/webhooks/verify.ts'

export default class WebhooksVerify extends LocalCommand {
  static override summary = 'Check the signature of a saved delivery, without a service'
  static override description =
    'Reads the body, byte for byte as it was received, from a file or standard input. man/svc-webhooks.7 explains the signatures. Exit 0 valid, 1 invalid, 9 cannot tell.'
  static override examples = [
    'svc webhooks verify body.json --secret @secret.txt --headers headers.txt\nnative: valid\nStandard Webhooks: valid\nsigned at 2026-01-31T12:00:00.000Z, 12 s ago',
    "svc webhooks verify --secret @secret.txt --header 'X-Service-Signature: sha256=3f0c…' --header 'X-Service-Signature-Timestamp: 1769860800000' < body.json",
    'svc webhooks verify body.json --secret @secret.txt --headers headers.txt --tolerance 300 --json\n{\n  "verdict": "invalid",\n  "native": "valid",\n  "standard": "valid",\n  "signedAt": "2026-01-31T12:00:00.000Z",\n  "reason": "signed 720 s ago, more than the 300 s allowed"\n}',
  ]
  static override args = { file: textArg('File of the body; - or nothing for standard input', false) }
  static override flags = {
    secret: string({
      description: 'Secret of the webhook: - for standard input, @file for a file',
      helpValue: '-|@FILE',
      required: true,
    }),
    header: string({
      description: "A header of the delivery, such as 'webhook-id: …'; may be repeated",
      helpValue: 'LINE',
      multiple: true,
      multipleNonGreedy: true,
    }),
    headers: string({
      description: 'File of the headers, one a line, as saved by curl -i or nc',
      helpValue: 'FILE',
    }),
    tolerance: integer({
      description: 'Also refuse signatures with a time this far in the past or future',
      helpValue: 'SECONDS',
      min: 1,
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(WebhooksVerify)
    await verifyDelivery(parseOutputFlags(flags), (args.file as string | undefined) ?? '-', flags)
  }
}
