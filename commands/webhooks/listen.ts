import { integer, string } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { parseOutputFlags } from '../../src/cli/print.ts'
import { listen } from '../../src/cli/webhooks/listen.ts'

export default class WebhooksListen extends ApiCommand {
  static override endpoints = ['GET /webhooks/:id/relay']
  static override summary = 'Receive deliveries on this machine, check their signatures and forward them'
  static override description =
    'For developers of a receiver: prints a line for each delivery, until Ctrl-C. With --webhook the service relays a signed copy of each delivery of a webhook that is made from now on, also while it is paused, over the connection of this command: no port, certificate or address has to be reachable. What the webhook itself gets, and when, does not change. Custom headers of the webhook are left out, as their values are secret: give them with --header. Without --webhook the command listens at a port, and needs no sign-in. Deliveries that are not signed with --secret are answered 401. With --forward-to the sender gets the answer of the target, at most 64 KiB of it, or 502 when it cannot be reached and 504 after 25 s; otherwise 200. With --json one object a line.'
  static override examples = [
    'svc webhooks listen --webhook "Ticket system" --forward-to http://127.0.0.1:8080/hooks\nRelaying copies of the deliveries of Ticket system to http://127.0.0.1:8080/hooks, from https://svc.example.com; Ctrl-C ends\n2026-01-31T12:00:00.000Z  alert.triggered          0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55  unchecked  200 in 12 ms',
    'svc webhooks listen --secret @secret.txt --host 0.0.0.0 --port 8443 --cert cert.pem --key key.pem',
    'svc webhooks listen --webhook "Ticket system" --event device.online,device.offline -o ndjson | jq .event.data',
  ]
  static override flags = {
    webhook: string({
      description: 'Relay the deliveries of this webhook (id or name)',
      helpValue: 'WEBHOOK',
      exclusive: ['host', 'port', 'cert', 'key'],
    }),
    header: string({
      description: "Add a header to what --webhook relays, 'Name: value'; 'Name: @file' for a secret",
      helpValue: 'HEADER',
      multiple: true,
      multipleNonGreedy: true,
      dependsOn: ['webhook'],
    }),
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
    event: string({
      aliases: ['events'],
      description: 'Print and forward these event types only, such as device.online,device.offline',
      helpValue: 'TYPES',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(WebhooksListen)
    const { webhook } = flags
    if (webhook === undefined) return listen(parseOutputFlags(flags), flags)
    const { relay } = await import('../../src/cli/webhooks/relay.ts')
    await relay(this.open(flags), { ...flags, webhook })
  }
}
