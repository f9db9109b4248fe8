import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import type { WebhookDelivery } from '../../src/webhooks/deliveries/contract.ts'
import { lockWebhook } from '../../src/webhooks/store.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { until } from '../daemon/process.ts'
import { onEveryDatabase } from '../databases.ts'
import { serviceOn, testSecrets } from '../harness.ts'
import { reaching, receiver } from './receiver.ts'
import { gate, handOn, healthy, stage } from './webhook-fixture.ts'

const deliveredIn = (all: WebhookDelivery[]) => all.filter(({ status }) => status === 'delivered').length

describe.skipIf(!hasOpenssl)('a webhook with a backlog', () => {
  const certificate = testCertificate()
  onEveryDatabase((kind, open) => {
    /** Twenty deliveries, of which four are in flight and wait for `answer`. */
    const start = async () => {
      const { opened: asked, open: answer } = gate()
      const fixture = await stage(open, certificate)
      const to = await receiver(certificate, () => ({ status: 204, when: asked }))
      const well = await healthy(certificate, fixture)
      const id = await fixture.hook(to.url)
      const events = await fixture.raise(20)
      await to.until(4)
      await well.beats()
      expect(to.got).toHaveLength(4)
      return { ...fixture, to, well, id, events, answer, params: { id } }
    }

    /** Where the request is made: at the process that sends, or at another one. */
    const doors = kind === 'postgres' ? ['this process', 'another process'] : ['this process']
    const clientAt = async (door: string, { service, token }: Awaited<ReturnType<typeof stage>>) => {
      if (door === 'this process') return service.client(token)
      return (await serviceOn(service, { env: reaching(certificate) })).client(token)
    }

    it.each(doors)('that is paused through %s is sent nothing more after the reply', async (door) => {
      const fixture = await start()
      const { params, id, to, well, client, answer, events, untilAll, deliveries } = fixture
      const there = await clientAt(door, fixture)
      await there.call(api.webhooks.update, { params, body: { status: 'paused' } })
      answer()
      await until(async () => deliveredIn(await deliveries(id)) === 4)
      await well.beats()
      await well.beats()
      expect(to.got).toHaveLength(4)
      expect((await deliveries(id)).filter(({ status }) => status === 'pending')).toHaveLength(16)

      await client.call(api.webhooks.update, { params, body: { status: 'active' } })
      await untilAll(id, 20, ({ status }) => status === 'delivered')
      expect(to.ids().sort()).toEqual(events.sort())
    })

    it.each(doors)('that is deleted through %s is sent nothing more after the reply', async (door) => {
      const fixture = await start()
      const { params, to, well, client, service, answer } = fixture
      const there = await clientAt(door, fixture)
      await there.call(api.webhooks.remove, { params })
      answer()
      await until(() => to.open === 0)
      await well.beats()
      await fixture.raise(3)
      await well.beats()
      expect(to.got).toHaveLength(4)
      const gone = client.call(api.webhookDeliveries.list, { params, query: {} })
      await expect(gone).rejects.toMatchObject({ status: 404 })
      const holders = service.storage.read.selectFrom('webhook_queues').select('holder')
      await until(async () => (await holders.execute()).every(({ holder }) => holder === null))
    })

    it('whose organization is deleted is sent nothing more after the reply', async () => {
      const { orgId, to, client, service, answer } = await start()
      const { partnerId } = await client.call(api.orgs.show, { params: { id: orgId } })
      const other = await client.call(api.orgs.create, { body: { partnerId, name: 'Dairy', slug: 'dairy' } })
      const well = await healthy(certificate, handOn(client, other.id))
      await client.call(api.orgs.remove, { params: { id: orgId } })
      answer()
      await until(() => to.open === 0)
      await well.beats()
      await well.beats()
      expect(to.got).toHaveLength(4)
      const holders = service.storage.read.selectFrom('webhook_queues').select('holder')
      await until(async () => (await holders.execute()).every(({ holder }) => holder === null))
    })

    it('continues when it is set active while a test delivery is still in flight', async () => {
      const { params, id, to, well, client, answer, events, untilAll, deliveries } = await start()
      await client.call(api.webhooks.update, { params, body: { status: 'paused' } })
      answer()
      await until(async () => deliveredIn(await deliveries(id)) === 4)
      const { opened: asked, open: answerTest } = gate()
      to.answer = () => ({ status: 204, when: asked })
      await client.call(api.webhookDeliveries.test, { params, body: {} })
      await to.until(5)
      await well.beats()
      await client.call(api.webhooks.update, { params, body: { status: 'active' } })
      answerTest()
      const all = await untilAll(id, 21, ({ status }) => status === 'delivered')
      expect(to.ids().sort()).toEqual([...events, all.at(-1)!.eventId].sort())
    })

    it('whose URL changes sends the deliveries that are not in flight to the new URL', async () => {
      const { params, id, to, client, answer, untilAll } = await start()
      const other = await receiver(certificate)
      await client.call(api.webhooks.update, { params, body: { url: other.url } })
      answer()
      await untilAll(id, 20, ({ status }) => status === 'delivered')
      expect([to.got.length, other.got.length]).toEqual([4, 16])
    })

    it('that is paused and resumed repeatedly loses nothing and delays nobody', async () => {
      const fixture = await stage(open, certificate)
      const { client, hook, raise, untilAll } = fixture
      const to = await receiver(certificate)
      const id = await hook(to.url)
      const params = { id }
      const made: string[] = []
      const toggling = (async () => {
        while (made.length < 60) {
          for (const status of ['paused', 'active'] as const) {
            await client.call(api.webhooks.update, { params, body: { status } })
          }
        }
      })()
      await Promise.all([1, 2, 3].map(async () => made.push(...(await raise(20)))))
      await toggling
      await untilAll(id, 60, () => true)
      await client.call(api.webhookDeliveries.replay, { params, body: {} })
      const all = await untilAll(id, 60, ({ status }) => status === 'delivered')
      expect(all.map(({ sequence }) => sequence)).toEqual(all.map((_, n) => n + 1))
      expect(to.ids().sort()).toEqual(made.sort())
    })

    it.runIf(kind === 'postgres')('still gets events while a transaction is about to change it', async () => {
      const { service, client, hook, raise } = await stage(open, certificate)
      const to = await receiver(certificate)
      const id = await hook(to.url)
      const { opened: changed, open: change } = gate()
      const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
      const changing = service.storage.write(async (tx) => {
        await lockWebhook(tx, cipher, { kind: 'system' }, id)
        await changed
      })
      try {
        await raise()
        await client.call(api.webhookDeliveries.test, { params: { id }, body: {} })
        await to.until(2)
      } finally {
        change()
        await changing
      }
    })

    it('that is paused keeps new deliveries, unsent, until they are replayed', async () => {
      const { hook, raise, client, deliveries, untilAll, ...fixture } = await stage(open, certificate)
      const to = await receiver(certificate)
      const well = await healthy(certificate, { hook, raise, client, deliveries, untilAll, ...fixture })
      const id = await hook(to.url)
      const params = { id }
      await client.call(api.webhooks.update, { params, body: { status: 'paused' } })
      const events = await raise(5)
      await well.beats()
      const kept = await untilAll(id, 5, ({ nextAttemptAt }) => nextAttemptAt === null)
      expect(kept.map(({ status, attempt, eventId }) => [status, attempt, eventId])).toEqual(
        events.map((eventId) => ['pending', 0, eventId]),
      )
      await client.call(api.webhooks.update, { params, body: { status: 'active' } })
      const [after] = await raise()
      await to.until(1)
      await well.beats()
      expect(to.ids()).toEqual([after])
      const reply = await client.call(api.webhookDeliveries.replay, { params, body: { status: 'kept' } })
      expect(reply).toMatchObject({ deliveries: 5, nextAfter: null })
      const sent = await untilAll(id, 6, ({ status }) => status === 'delivered')
      expect(sent.map((one) => one.sequence)).toEqual([1, 2, 3, 4, 5, 6])
      expect(sent.slice(0, 5).map((one) => one.id)).toEqual(kept.map((one) => one.id))
      expect(to.ids().sort()).toEqual([...events, after].sort())
    })
  })
})
