import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { receiver } from './receiver.ts'
import { stage } from './webhook-fixture.ts'

describe.skipIf(!hasOpenssl)('a replay', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    const start = async (count: number) => {
      const fixture = await stage(open, certificate)
      const to = await receiver(certificate, () => ({ status: 500 }))
      const id = await fixture.hook(to.url, {}, { maxRetries: 0 })
      const params = { id }
      await fixture.raise(count)
      const failed = await fixture.untilAll(id, count, ({ status }) => status === 'failed')
      const replay = (body = {}) => fixture.client.call(api.webhookDeliveries.replay, { params, body })
      return { ...fixture, to, id, params, failed, replay }
    }

    it('leaves failed deliveries unchanged, and sends the latest of each event, once', async () => {
      const { id, failed, replay, untilAll, deliveries, to, client } = await start(3)
      expect(await replay()).toMatchObject({ deliveries: 3, nextAfter: null, through: 3 })
      const again = (await untilAll(id, 6, ({ status }) => status === 'failed')).slice(3)
      expect(again.map(({ retryOf, sequence }) => [retryOf, sequence])).toEqual(
        failed.map((one, n) => [one.id, n + 4]),
      )
      expect((await deliveries(id)).slice(0, 3)).toEqual(failed)
      const dead = await client.call(api.webhookDeliveries.dead, { query: {} })
      expect(dead.data.map((one) => one.id)).toEqual(again.map((one) => one.id).reverse())
      to.answer = () => ({ status: 204 })
      expect(await replay()).toMatchObject({ deliveries: 3 })
      await untilAll(id, 9, ({ status }) => status !== 'pending')
      expect(await replay()).toMatchObject({ deliveries: 0 })
      expect(await replay({ status: 'delivered' })).toMatchObject({ deliveries: 3 })
      await untilAll(id, 12, ({ status }) => status !== 'pending')
      expect(new Set(to.ids()).size).toBe(3)
      // Each event has one latest delivery, however often it was replayed.
      expect(await replay({ status: 'delivered' })).toMatchObject({ deliveries: 3 })
    })

    it('that continues takes nothing that was created since it began', async () => {
      const { id, replay, untilAll } = await start(2)
      const { through } = await replay()
      await untilAll(id, 4, ({ status }) => status === 'failed')
      expect(await replay({ after: 2, through })).toMatchObject({ deliveries: 0, nextAfter: null })
    })

    it('sends nothing twice when several are requested at once', async () => {
      const { id, replay, untilAll, stats } = await start(20)
      const replies = await Promise.all([1, 2, 3, 4].map(() => replay({ through: 20 })))
      expect(replies.reduce((sum, { deliveries }) => sum + deliveries, 0)).toBe(20)
      const all = await untilAll(id, 40, ({ status }) => status === 'failed')
      expect(all.map(({ sequence }) => sequence)).toEqual(all.map((_, n) => n + 1))
      expect(await stats(id)).toMatchObject({ total: 40, failed: 40 })
    })
  })
})
