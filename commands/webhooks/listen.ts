import { integer, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { parseOutputFlags } from '../../src/cli/print.ts'
import { listen } from '../../src/cli/webhooks/listen.ts'

export default class WebhooksListen extends LocalCommand {
  static override summary = 'Receive deliveries on this machine, check their signatures and forward them'
  static override description =
    'For developers of a receiver: prints a line for each delivery, until Ctrl-C. Deliveries that are not signed with --secret are answered 401. With --forward-to the sender gets the answer of the target, at most 64 KiB of it, or 502 when it cannot be reached and 504 after 25 s; otherwise 200. With --json one object a line.'
  static override examples = [
    'svc webhooks listen --secret @secret.txt --forward-to http://127.0.0.1:8080/hooks\nListening at http://127.0.0.1:4400, forwarding to http://127.0.0.1:8080/hooks; Ctrl-C ends\nWebhooks are sent over HTTPS alone: give --cert and --key, or put a TLS proxy or a tunnel in front\n2026-01-31T12:00:00.000Z  alert.triggered          0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55  valid      200 in 12 ms',
    'svc webhooks listen --secret @secret.txt --host 0.0.0.0 --port 8443 --cert cert.pem --key key.pem',
    'svc webhooks listen --events device.online,device.offline -o ndjson | jq .event.data',
  ]
  static override flags = {
    host: string({ description: 'Address to listen at', helpValue: 'HOST', default: '127.0.0.1' }),
    port: integer({
      description: 'Port to listen at; 0 picks a free one',
      helpValue: 'N',
      default: 4400,
      min: 0,
      max: 65_535,
    }),
    secret: string({
      description: 'Secret of the webhook: - for standard input, @file for a file',
      helpValue: '-|@FILE',
    }),
    'forward-to': string({ description: 'Forward each delivery to this address', helpValue: 'URL' }),
    cert: string({ description: 'Certificate to serve HTTPS with, PEM', helpValue: 'FILE' }),
    key: string({ description: 'Key of that certificate, PEM', helpValue: 'FILE' }),
    tolerance: integer({
      description: 'Refuse signatures with a time this far in the past or future',
      helpValue: 'SECONDS',
      default: 300,
      min: 1,
    }),
    events: string({
      description: 'Print and forward these event types only, such as device.online,device.offline',
      helpValue: 'TYPES',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(WebhooksListen)
    await listen(parseOutputFlags(flags), flags)
  }
}
