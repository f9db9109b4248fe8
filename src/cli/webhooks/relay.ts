import { setTimeout as sleep } from 'node:timers/promises'
import { webhookRelay } from '../../webhooks/relay/contract.ts'
import type { CommandContext } from '../base.ts'
import { resolveWithinOrg } from '../current-org.ts'
import { retryUntilAvailable } from '../follow.ts'
import { printNote } from '../print.ts'
import { flushNotes } from '../stderr-notes.ts'
import { escapeToOneLine } from '../table.ts'
import { parseHeader } from './header-flags.ts'
import { type ReceiverFlags, receiverOptions } from './listen.ts'
import { deliveryHandler } from './receiver.ts'

export type RelayFlags = ReceiverFlags & { webhook: string; header?: string[] | undefined }

const minPollMs = 500
const maxPollMs = 2000

/** Receives copies of the deliveries of a webhook from the service, until Ctrl-C. */
export async function relay(run: CommandContext, flags: RelayFlags): Promise<void> {
  const options = await receiverOptions(run.output, flags)
  const own = await Promise.all((flags.header ?? []).map(parseHeader))
  const receive = deliveryHandler(options)
  const id = await resolveWithinOrg(run, 'webhook', flags.webhook)
  const read = (after?: number) => run.client.call(webhookRelay.read, { params: { id }, query: { after } })
  let { nextAfter } = await read()
  greet(run, flags.webhook, options.target)
  for (let pause = minPollMs; ; ) {
    const { data, nextAfter: next } = await retryUntilAvailable(() => read(nextAfter))
    for (const { headers, body } of data) {
      const all = [...own.map(({ key, value }) => [key, value]), ...Object.entries(headers)] as const
      await receive(
        Object.fromEntries(all.map(([name, value]) => [name!.toLowerCase(), value!])),
        Buffer.from(body),
      )
    }
    nextAfter = next
    flushNotes()
    pause = data.length > 0 ? minPollMs : Math.min(maxPollMs, pause * 1.5)
    if (data.length === 0) await sleep(pause)
  }
}

function greet({ settings }: CommandContext, webhook: string, target: URL | undefined): void {
  const to = target ? ` to ${target.origin}${target.pathname}` : ''
  printNote(
    `Relaying copies of the deliveries of ${escapeToOneLine(webhook)}${to}, from ${settings.url.value}; Ctrl-C ends`,
  )
  flushNotes()
}
