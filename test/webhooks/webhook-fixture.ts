import type { z } from 'zod'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import type { EventType } from '../../src/core/event-types.ts'
import type { Instant } from '../../src/core/time.ts'
import type { NewRetryPolicy, NewWebhook } from '../../src/webhooks/contract.ts'
import type { WebhookDelivery } from '../../src/webhooks/deliveries/contract.ts'
import type { testCertificate } from '../cli/network.ts'
import { until } from '../daemon/process.ts'
import type { Open } from '../databases.ts'
import { type ServiceOptions, startService, type TestClock, type TestService } from '../harness.ts'
import { systemToken } from '../world.ts'
import { reaching, receiver } from './receiver.ts'

type Certificate = ReturnType<typeof testCertificate>

type Type = Exclude<EventType, 'webhook.test'>
type Policy = z.input<typeof NewRetryPolicy>

/** One organization, and the operations of a test on its webhooks. */
export function handOn(client: Client, orgId: string) {
  const deliveries = async (id: string): Promise<WebhookDelivery[]> =>
    (await client.call(api.webhookDeliveries.list, { params: { id }, query: { limit: 100 } })).data.reverse()
  return {
    client,
    orgId,
    async hook(url: string, more: Partial<NewWebhook> = {}, policy?: Policy): Promise<string> {
      const body = { orgId, name: 'a', url, events: ['patch.installed' as const], ...more }
      const { id } = await client.call(api.webhooks.create, { body })
      if (policy) await client.call(api.webhooks.setRetryPolicy, { params: { id }, body: policy })
      return id
    },
    /** Raises so many events one after the other; returns their ids. */
    async raise(count = 1, type: Type = 'patch.installed'): Promise<string[]> {
      const ids: string[] = []
      for (let n = 0; n < count; n++) {
        ids.push((await client.call(api.events.create, { body: { orgId, type, data: { n } } })).id)
      }
      return ids
    },
    /** The first hundred, in order. */
    deliveries,
    async stats(id: string) {
      return (await client.call(api.webhooks.show, { params: { id } })).deliveryStats
    },
    /** Waits until a webhook has so many deliveries that all satisfy `is`; returns them. */
    async untilAll(
      id: string,
      count: number,
      is: (one: WebhookDelivery) => boolean,
    ): Promise<WebhookDelivery[]> {
      let found: WebhookDelivery[] = []
      await until(async () => {
        found = await deliveries(id)
        return found.length === count && found.every(is)
      }, 20_000)
      return found
    },
  }
}

/** A service with one organization, which may reach receivers on this machine. */
export async function stage(open: Open, certificate: Certificate, options: ServiceOptions = {}) {
  const env = { ...reaching(certificate), ...options.env }
  const service = await startService(open, { ...options, env })
  const token = await systemToken(service)
  return { service, token, ...(await organizationIn(service, token)) }
}

export async function organizationIn(service: TestService, token: string) {
  const client = service.client(token)
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  const org = await client.call(api.orgs.create, { body: { partnerId, name: 'Bakery', slug: 'bakery' } })
  return handOn(client, org.id)
}

/** Advances the clock, and wakes the service without waiting for its next sweep. */
export async function pass(service: TestService, clock: TestClock, seconds: number): Promise<void> {
  clock.forward(seconds)
  await service.storage.write(async () => {})
}

/** When the last of these is due again. */
export const lastDue = (deliveries: readonly WebhookDelivery[]): Instant =>
  deliveries
    .map(({ nextAttemptAt }) => nextAttemptAt ?? '')
    .sort()
    .at(-1)!

/**
 * A healthy webhook. `beats` resolves when it got an event raised now: whatever was due earlier has then
 * been sent.
 */
export async function healthy(certificate: Certificate, hand: ReturnType<typeof handOn>) {
  const to = await receiver(certificate)
  const id = await hand.hook(to.url, { name: 'healthy', events: ['user.login'] })
  let count = 0
  return {
    id,
    to,
    async beats(): Promise<void> {
      await hand.raise(1, 'user.login')
      await to.until(++count, 20_000)
    },
  }
}

/** A promise with a function that resolves it. */
export function gate() {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}
