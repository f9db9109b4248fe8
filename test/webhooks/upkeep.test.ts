import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds } from '../../src/core/time.ts'
import { insertRequested } from '../../src/webhooks/deliveries/requested.ts'
import { deleteOldDeliveries } from '../../src/webhooks/jobs.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { testClock } from '../harness.ts'
import { receiver } from './receiver.ts'
import { pass, stage } from './webhook-fixture.ts'

const hour = 3600
const day = 24 * hour

describe.skipIf(!hasOpenssl)('the upkeep of webhooks', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    const start = async () => {
      const clock = testClock()
      const fixture = await stage(open, certificate, { clock })
      const begin = clock()
      const tidied = (seconds: number, deliveryDays = 30, deliveriesKept = 100_000) =>
        deleteOldDeliveries(
          fixture.service.storage,
          { deliveryDays, deliveriesKept },
          addSeconds(begin, seconds),
        )
      const to = await receiver(certificate)
      const id = await fixture.hook(to.url)
      const pause = () =>
        fixture.client.call(api.webhooks.update, { params: { id }, body: { status: 'paused' } })
      return { ...fixture, clock, begin, tidied, to, id, pause, params: { id } }
    }

    it('fails deliveries that a paused webhook has kept for 72 hours, and states why', async () => {
      const { id, pause, raise, untilAll, tidied, deliveries, client, params, to } = await start()
      await pause()
      await raise(2)
      const kept = await untilAll(id, 2, ({ status }) => status === 'pending')
      await tidied(72 * hour)
      expect(await deliveries(id)).toEqual(kept)
      await tidied(72 * hour + 1)
      const expired = {
        status: 'failed',
        attempt: 0,
        nextAttemptAt: null,
        failureClass: null,
        hint: null,
        errorMessage: 'Stored for 72 hours while the webhook was paused, and not replayed',
      }
      expect(await deliveries(id)).toEqual(kept.map((one) => ({ ...one, ...expired })))
      expect((await client.call(api.webhookDeliveries.dead, { query: {} })).data).toHaveLength(2)
      const again = { ...params, deliveryId: kept[0]!.id }
      await client.call(api.webhookDeliveries.retry, { params: again })
      await to.until(1)
      expect(to.got[0]!.event.id).toBe(kept[0]!.eventId)
    })

    it('keeps them for 72 hours even where the retention of deliveries is one day', async () => {
      const { id, pause, raise, untilAll, tidied, deliveries } = await start()
      await pause()
      await raise(2)
      const kept = await untilAll(id, 2, ({ status }) => status === 'pending')
      await tidied(71 * hour, 1)
      expect(await deliveries(id)).toEqual(kept)
      await tidied(73 * hour, 1)
      expect((await deliveries(id)).map(({ status }) => status)).toEqual(['failed', 'failed'])
      await tidied(73 * hour + day + 1, 1)
      expect(await deliveries(id)).toEqual([])
    })

    it('keeps a due backlog, however old, until the webhook is active again', async () => {
      const { id, pause, raise, untilAll, tidied, to, client, params, service, clock } = await start()
      await to.down()
      await raise(3)
      await untilAll(id, 3, ({ status }) => status === 'retrying')
      await pause()
      await tidied(365 * day, 1)
      await to.up()
      await client.call(api.webhooks.update, { params, body: { status: 'active' } })
      await pass(service, clock, 30 * day)
      await untilAll(id, 3, ({ status }) => status === 'delivered')
    })

    it('removes deliveries when their retention has passed since they ended', async () => {
      const { id, raise, untilAll, tidied, deliveries, clock, client, params, to, stats, service } =
        await start()
      await raise(2)
      await untilAll(id, 2, ({ status }) => status === 'delivered')
      to.answer = () => ({ status: 500 })
      await client.call(api.webhooks.setRetryPolicy, {
        params,
        body: { maxRetries: 1, initialDelayMs: day * 1000, maxDelayMs: day * 1000 },
      })
      await raise()
      await untilAll(id, 3, ({ attempt }) => attempt > 0)
      await tidied(30 * day, 30)
      expect(await deliveries(id)).toHaveLength(3)
      await tidied(30 * day + 1, 30)
      expect(await deliveries(id)).toMatchObject([{ sequence: 3, status: 'retrying' }])
      await pass(service, clock, day)
      await untilAll(id, 1, ({ status }) => status === 'failed')
      await tidied(2 * day - hour, 1)
      expect(await deliveries(id)).toMatchObject([{ sequence: 3, status: 'failed' }])
      await tidied(2 * day + 1, 1)
      expect(await deliveries(id)).toEqual([])
      expect(await stats(id)).toMatchObject({ total: 0 })
      to.answer = () => ({ status: 200 })
      await raise()
      expect((await untilAll(id, 1, ({ status }) => status === 'delivered'))[0]).toMatchObject({
        sequence: 4,
      })
    })

    it('leaves a webhook its newest deliveries: older ones that wait fail, and are deleted with those that ended', async () => {
      const { id, pause, raise, untilAll, tidied, deliveries, hook, to } = await start()
      const other = await hook(to.url)
      await raise(2)
      await untilAll(id, 2, ({ status }) => status === 'delivered')
      await pause()
      await raise(4)
      await untilAll(id, 6, ({ sequence, status }) => sequence < 3 || status === 'pending')
      await untilAll(other, 6, ({ status }) => status === 'delivered')
      const statuses = async () => (await deliveries(id)).map(({ sequence, status }) => [sequence, status])
      await tidied(0, 30, 6)
      expect(await statuses()).toHaveLength(6)
      await tidied(0, 30, 2)
      const failed = { status: 'failed', errorMessage: expect.stringContaining('2 later deliveries') }
      expect(await deliveries(id)).toMatchObject([
        ...[3, 4].map((sequence) => ({ sequence, ...failed })),
        ...[5, 6].map((sequence) => ({ sequence, status: 'pending' })),
      ])
      expect(await deliveries(other)).toMatchObject([{ sequence: 5 }, { sequence: 6 }])
      await tidied(0, 30, 2)
      expect(await statuses()).toEqual([
        [5, 'pending'],
        [6, 'pending'],
      ])
    })

    it('removes a deleted webhook with all its rows, however many, and no rows of others', async () => {
      const { id, raise, untilAll, tidied, service, orgId, client, params, clock, hook, to } = await start()
      const other = await hook(to.url, { events: ['patch.failed'] })
      await raise(1, 'patch.failed')
      await untilAll(other, 1, ({ status }) => status === 'delivered')
      await client.call(api.webhooks.update, { params, body: { status: 'paused' } })
      const { storage } = service
      await storage.write(async (tx) => {
        const now = addSeconds(clock(), day)
        for (let n = 0; n < 1001; n++) {
          const made = { id: newId(), eventId: newId(), webhookId: id, orgId, event: 'patch.failed' }
          await insertRequested(tx, { ...made, payload: {}, now })
        }
      })
      await client.call(api.webhooks.remove, { params })
      await tidied(1)
      const tables = ['webhook_deliveries', 'webhook_queues', 'webhook_counts', 'webhook_events'] as const
      for (const table of tables) {
        const rows = await storage.read.selectFrom(table).select('webhook_id').execute()
        expect(rows, table).toEqual([{ webhook_id: other }])
      }
      expect(await storage.read.selectFrom('webhooks').select('id').execute()).toEqual([{ id: other }])
    })

    it('removes a delivery that is just being added to the queue of a deleted webhook', async () => {
      const { tidied, service, orgId, client, params, clock } = await start()
      const { storage } = service
      await client.call(api.webhooks.remove, { params })
      const added = Promise.withResolvers<void>()
      const end = Promise.withResolvers<void>()
      const adding = storage.write(async (tx) => {
        const made = { id: newId(), eventId: newId(), webhookId: params.id, orgId, event: 'patch.failed' }
        await insertRequested(tx, { ...made, payload: {}, now: clock() })
        added.resolve()
        await end.promise
      })
      await added.promise
      let isDone = false
      const tidying = tidied(1).then(() => {
        isDone = true
      })
      await sleep(200)
      expect(isDone).toBe(false)
      end.resolve()
      await Promise.all([adding, tidying])
      for (const table of ['webhook_deliveries', 'webhook_queues', 'webhook_counts'] as const) {
        expect(await storage.read.selectFrom(table).select('webhook_id').execute()).toEqual([])
      }
    })
  })
})
