import { type OutboxMessage, readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import { until } from '../daemon/process.ts'
import type { TestService } from '../harness.ts'

/** Waits for the newest message of a kind to an address. */
export async function received(service: TestService, to: string, kind: string): Promise<OutboxMessage> {
  let found: OutboxMessage | undefined
  await until(async () => {
    const all = await readOutboxMessages(service.dataDir)
    found = all.filter((one) => one.to === to && one.kind === kind).sort((a, b) => (a.at < b.at ? 1 : -1))[0]
    return found !== undefined
  })
  return found!
}

/** The token in the link of a message. */
export const tokenIn = ({ links }: OutboxMessage): string =>
  new URL(links[0]!).searchParams.get('token') ?? ''
