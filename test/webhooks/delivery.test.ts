import { setTimeout as sleep } from 'node:timers/promises'
import { Webhook } from 'standardwebhooks'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { systemClock } from '../../src/core/time.ts'
import { checkSignatures, nativeSignature } from '../../src/core/webhook-signature.ts'
import { raisableTypes } from '../../src/events/contract.ts'
import { emit } from '../../src/events/outbox.ts'
import type { Db } from '../../src/storage/open.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { addWebhook, buildWorld } from '../world.ts'
import { reaching, receiver } from './receiver.ts'

const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'

describe.skipIf(!hasOpenssl)('deliveries', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    const start = async (env: Record<string, string> = {}) => {
      const service = await startService(open, { env: { ...reaching(certificate), ...env } })
      const world = await buildWorld(service)
      const system = service.client(world.tokens.system)
      const client = service.client(world.tokens.bakery)
      const orgId = world.orgs.bakery.id
      const to = await receiver(certificate)
      const hook = (more: Record<string, unknown> = {}) =>
        client.call(api.webhooks.create, {
          body: { name: 'a', url: `${to.url}/in?x=1`, secret, events: ['patch.installed'], ...more },
        })
      const raise = (data: Record<string, unknown> = {}, type = 'patch.installed' as const) =>
        system.call(api.events.create, { body: { orgId, type, data } })
      const deliveries = async (id: string) =>
        (await client.call(api.webhookDeliveries.list, { params: { id } })).data
      const settled = async (id: string, status: string) => {
        await expect.poll(() => deliveries(id), { timeout: 10_000 }).toMatchObject([{ status }])
        return (await deliveries(id))[0]!
      }
      return { service, world, system, client, orgId, to, hook, raise, deliveries, settled }
    }

    it('an event is sent to the webhooks that subscribe to it, signed both ways, and recorded', async () => {
      const { system, client, orgId, to, hook, raise, settled } = await start()
      to.answer = () => ({ status: 202, body: `thank you\u0000${'x'.repeat(2000)}` })
      const { id } = await hook({ headers: [{ key: 'X-Own', value: 'mine' }] })
      const event = await raise({ patchId: 'é' })
      await system.call(api.events.create, { body: { orgId, type: 'patch.failed' } })
      const [got] = await to.until(1)
      expect(got!.path).toBe('/in?x=1')
      expect(got!.event).toEqual({ ...event, data: { patchId: 'é' } })
      expect(Object.keys(got!.event)).toEqual(['id', 'type', 'timestamp', 'orgId', 'data'])
      const { headers, body } = got!
      expect(new Webhook(secret).verify(body, headers as Record<string, string>)).toEqual(got!.event)
      const delivery = await settled(id, 'delivered')
      const at = headers['x-service-signature-timestamp'] as string
      expect(headers).toMatchObject({
        'content-type': 'application/json',
        'user-agent': 'Service-Webhooks/1.0',
        'x-service-delivery-id': delivery.id,
        'x-service-event-id': event.id,
        'x-service-event-type': 'patch.installed',
        'x-service-sequence': '1',
        'x-service-timestamp': expect.stringMatching(/^\d{13}$/),
        'x-service-signature': nativeSignature(secret, at, body),
        'webhook-id': event.id,
        'x-own': 'mine',
      })
      expect(delivery).toEqual({
        retryOf: null,
        id: expect.any(String),
        webhookId: id,
        orgId,
        sequence: 1,
        status: 'delivered',
        event: 'patch.installed',
        eventId: event.id,
        payload: { patchId: 'é' },
        responseStatus: 202,
        responseBody: `thank you\uFFFD${'x'.repeat(990)}`,
        responseTimeMs: expect.any(Number),
        errorMessage: null,
        failureClass: null,
        hint: null,
        attempt: 1,
        nextAttemptAt: null,
        createdAt: expect.any(String),
        deliveredAt: expect.any(String),
      })
      const shown = await client.call(api.webhooks.show, { params: { id } })
      expect(shown).toMatchObject({
        successCount: 1,
        failureCount: 0,
        lastDeliveryAt: delivery.deliveredAt,
        lastSuccessAt: delivery.deliveredAt,
        deliveryStats: {
          total: 1,
          pending: 0,
          delivered: 1,
          failed: 0,
          retrying: 0,
          lastDeliveredAt: delivery.deliveredAt,
        },
      })
    })

    it('events of many types are delivered to their subscribers in order', async () => {
      const { service, client, orgId, hook } = await start()
      const all = await hook({ events: ['*'] })
      const some = await hook({ events: ['session.logout', 'alert.resolved'] })
      const happened = [...raisableTypes, ...raisableTypes]
      await service.storage.write(async (tx) => {
        for (const type of happened) await emit(tx, { orgId, type, data: {} }, systemClock())
      })
      const deliveredTo = async ({ id }: { id: string }) => {
        const list = { params: { id }, query: { limit: 100 } }
        const { data } = await client.call(api.webhookDeliveries.list, list)
        return data.map(({ event, sequence }) => [sequence, event]).reverse()
      }
      await expect.poll(() => deliveredTo(all), { timeout: 10_000 }).toHaveLength(happened.length)
      expect(await deliveredTo(all)).toEqual(happened.map((type, at) => [at + 1, type]))
      expect(await deliveredTo(some)).toEqual([
        [1, 'alert.resolved'],
        [2, 'session.logout'],
        [3, 'alert.resolved'],
        [4, 'session.logout'],
      ])
    })

    it('each event is delivered once to each of more webhooks than one batch holds, in order', async () => {
      const { service, orgId, raise } = await start()
      const { storage } = service
      const hooks = Array.from({ length: 450 }, (_, n) =>
        addWebhook(service, orgId, `hook ${n}`, ['patch.installed']),
      )
      const ids = (await Promise.all(hooks)).map(({ id }) => id).sort()
      const pause = (tx: Db) =>
        tx.updateTable('webhooks').set({ status: 'paused' }).where('id', 'in', ids).execute()
      await storage.write(pause)
      const events = [(await raise()).id, (await raise()).id]
      const waiting = () => storage.read.selectFrom('events').select('seq').execute()
      await expect.poll(waiting, { timeout: 25_000 }).toEqual([])
      const rows = await storage.read
        .selectFrom('webhook_deliveries')
        .select(['webhook_id', 'seq', 'event_id'])
        .where('webhook_id', 'in', ids)
        .orderBy('webhook_id')
        .orderBy('seq')
        .execute()
      expect(rows).toEqual(
        ids.flatMap((id) => events.map((event, at) => ({ webhook_id: id, seq: at + 1, event_id: event }))),
      )
    })

    it('an event is not sent for other types, to other organizations, or to later webhooks', async () => {
      const { service, world, client, to, hook, raise } = await start()
      await hook({ events: ['patch.failed'] })
      const garage = service.client(world.tokens.garage)
      const body = { name: 'b', url: to.url, events: ['*' as const] }
      await garage.call(api.webhooks.create, { body })
      await raise()
      // Fanned out, to no webhook.
      const waiting = () => service.storage.read.selectFrom('events').select('seq').execute()
      while ((await waiting()).length > 0) await sleep(5)
      const all = await hook({ events: ['*', 'patch.installed'] })
      await client.call(api.webhookDeliveries.test, { params: { id: all.id } })
      const got = await to.until(1)
      await raise({ n: 2 })
      await to.until(2)
      expect(got.map(({ event }) => event.type)).toEqual(['webhook.test', 'patch.installed'])
      expect(got[1]!.event.data).toEqual({ n: 2 })
    })

    it('every attempt sends the same bytes, and a failed one reports when the next is', async () => {
      const { client, to, hook, raise, settled } = await start()
      const answers = [{ status: 500, body: 'broken' }, { status: 200 }]
      to.answer = () => answers.shift()
      const { id } = await hook()
      await raise({ z: 1, a: [2.5, 'ü', null] })
      const retrying = await settled(id, 'retrying')
      expect(retrying).toMatchObject({
        attempt: 1,
        responseStatus: 500,
        responseBody: 'broken',
        errorMessage: 'HTTP 500: broken',
        failureClass: '5xx',
        hint: expect.stringContaining('check its log'),
        deliveredAt: null,
      })
      expect(Date.parse(retrying.nextAttemptAt!)).toBeGreaterThan(Date.parse(retrying.createdAt) + 900)
      const [first, second] = await to.until(2)
      expect(second!.body).toBe(first!.body)
      const same = ['x-service-delivery-id', 'x-service-sequence', 'webhook-id'] as const
      expect(same.map((name) => second!.headers[name])).toEqual(same.map((name) => first!.headers[name]))
      expect(new Webhook(secret).verify(second!.body, second!.headers as Record<string, string>)).toBeTruthy()
      await settled(id, 'delivered')
      const { successCount, failureCount } = await client.call(api.webhooks.show, { params: { id } })
      expect([successCount, failureCount]).toEqual([1, 1])
    })

    it('a delivery is signed with each current secret of the webhook, and unsigned without one', async () => {
      const { client, to, hook, raise } = await start()
      const { id } = await hook({ secret: null })
      const params = { id }
      await raise()
      const [bare] = await to.until(1)
      const signing = /signature/
      expect(Object.keys(bare!.headers).filter((name) => signing.test(name))).toEqual([])

      await client.call(api.webhooks.update, { params, body: { secret: 'first' } })
      const { secret: second } = await client.call(api.webhooks.rotateSecret, { params })
      await raise()
      const [, both] = await to.until(2)
      const valid = { native: 'valid', standard: 'valid' }
      for (const one of ['first', second]) {
        expect(checkSignatures(one, both!.headers as Record<string, string>, both!.body)).toMatchObject(valid)
      }
      expect(new Webhook(second).verify(both!.body, both!.headers as Record<string, string>)).toBeTruthy()
      const at = both!.headers['x-service-signature-timestamp'] as string
      expect(both!.headers['x-service-signature']).toBe(nativeSignature(second, at, both!.body))

      await client.call(api.webhooks.update, { params, body: { secret: null } })
      await raise()
      const [, , none] = await to.until(3)
      expect(Object.keys(none!.headers).filter((name) => signing.test(name))).toEqual([])
    })

    it('tests and retries are sent while the webhook is paused', async () => {
      const { client, to, hook, settled } = await start()
      to.answer = () => ({ status: 410 })
      const { id } = await hook()
      const params = { id }
      await client.call(api.webhooks.update, { params, body: { status: 'paused' } })
      const { delivery } = await client.call(api.webhookDeliveries.test, {
        params,
        body: { event: 'alert.triggered', payload: { severity: 'low' } },
      })
      const failed = await settled(id, 'failed')
      expect(failed).toMatchObject({
        id: delivery.id,
        event: 'alert.triggered',
        responseStatus: 410,
        attempt: 1,
      })
      to.answer = () => ({ status: 200 })
      const { delivery: again } = await client.call(api.webhookDeliveries.retry, {
        params: { id, deliveryId: delivery.id },
      })
      await to.until(2)
      const which = { params: { id, deliveryId: again.id } }
      const show = () => client.call(api.webhookDeliveries.show, which)
      await expect.poll(show, { timeout: 10_000 }).toMatchObject({ status: 'delivered' })
      expect(await show()).toMatchObject({
        id: again.id,
        retryOf: failed.id,
        eventId: failed.eventId,
        attempt: 1,
      })
      const { data } = await client.call(api.webhookDeliveries.list, { params })
      expect(data[1]).toEqual(failed)
      const [first, second] = to.got
      expect([first, second].map((one) => one!.headers['x-service-delivery-id'])).toEqual([
        failed.id,
        again.id,
      ])
      expect(second!.body).toBe(first!.body)
      expect(first!.event).toMatchObject({ type: 'alert.triggered', data: { severity: 'low' } })
      const { status } = await client.call(api.webhooks.show, { params })
      expect(status).toBe('paused')
    })

    it('a changed webhook is used without a restart', async () => {
      const { client, to, hook, raise } = await start()
      const other = await receiver(certificate)
      const { id } = await hook()
      await raise()
      await to.until(1)
      const change = { url: other.url, headers: [{ key: 'X-New', value: '1' }] }
      await client.call(api.webhooks.update, { params: { id }, body: change })
      await raise()
      const [got] = await other.until(1)
      expect([to.got.length, got!.headers['x-new'], got!.headers['x-service-sequence']]).toEqual([
        1,
        '1',
        '2',
      ])
    })
  })
})
