import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { addSeconds, secondsBetween } from '../../src/core/time.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { until } from '../daemon/process.ts'
import { onEveryDatabase } from '../databases.ts'
import { testClock } from '../harness.ts'
import { type Answer, receiver } from './receiver.ts'
import { gate, healthy, lastDue, pass, stage } from './webhook-fixture.ts'

describe.skipIf(!hasOpenssl)('a receiver', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    const start = async (answer: () => Answer = () => ({ status: 503, body: 'busy' })) => {
      const clock = testClock()
      const fixture = await stage(open, certificate, { clock })
      const to = await receiver(certificate, answer)
      return { ...fixture, clock, to, pass: (seconds: number) => pass(fixture.service, clock, seconds) }
    }

    it('that is down for ten minutes gets everything once it is back, under the same ids', async () => {
      const { clock, hook, raise, deliveries, untilAll, pass, to, stats } = await start(() => ({
        status: 204,
      }))
      await to.down()
      const begin = clock()
      const id = await hook(to.url, {}, { maxRetries: 15 })
      const events = await raise(5)
      const before = await untilAll(id, 5, ({ attempt }) => attempt === 1)
      expect(before[0]).toMatchObject({ status: 'retrying', failureClass: 'refused' })
      let attempts = 1
      for (
        let next = lastDue(before);
        secondsBetween(begin, next) < 600;
        next = lastDue(await deliveries(id))
      ) {
        await pass(secondsBetween(clock(), next))
        attempts += 1
        await untilAll(id, 5, ({ attempt }) => attempt === attempts)
      }
      expect(attempts).toBe(10)
      await pass(600 - secondsBetween(begin, clock()))
      await to.up()
      events.push(...(await raise()))
      await to.until(1, 20_000)
      await pass(secondsBetween(clock(), lastDue(await deliveries(id))))
      const got = await to.until(6, 20_000)
      const after = await untilAll(id, 6, ({ status }) => status === 'delivered')
      expect(got.map(({ event }) => event.id).sort()).toEqual(events.sort())
      const deliveryIds = got.map(({ headers }) => headers['x-service-delivery-id'])
      expect(deliveryIds.sort()).toEqual(after.map((one) => one.id).sort())
      const names = (all: typeof after) => all.map((one) => [one.id, one.eventId, one.sequence])
      expect(names(after).slice(0, 5)).toEqual(names(before))
      expect(after.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4, 5, 6])
      expect(await stats(id)).toMatchObject({ total: 6, delivered: 6, lastDeliveredAt: clock() })
    })

    it('that stays down makes dead letters, which state the reason', async () => {
      const { client, hook, raise, untilAll, to } = await start()
      await to.down()
      const id = await hook(to.url, {}, { maxRetries: 1, initialDelayMs: 0 })
      const events = await raise(2)
      await untilAll(id, 2, ({ status }) => status === 'failed')
      const { data } = await client.call(api.webhookDeliveries.dead, { query: {} })
      expect(data.map(({ eventId }) => eventId).reverse()).toEqual(events)
      for (const one of data) {
        expect(one).toMatchObject({ webhookId: id, attempt: 2, failureClass: 'refused', nextAttemptAt: null })
        expect(one.hint).toMatch(/^nothing listens there: /)
      }
    })

    it('that fails is tried again after 1, 2, 4, 8 and 16 s, six times in all', async () => {
      const fixture = await start()
      const { clock, client, hook, raise, untilAll, pass, to } = fixture
      const well = await healthy(certificate, fixture)
      const id = await hook(to.url)
      const [eventId] = await raise()
      for (const [n, wait] of [1, 2, 4, 8, 16].entries()) {
        const [one] = await untilAll(id, 1, ({ attempt }) => attempt === n + 1)
        expect(one).toMatchObject({ status: 'retrying', nextAttemptAt: addSeconds(clock(), wait) })
        await pass(wait - 0.001)
        await well.beats()
        expect(to.got).toHaveLength(n + 1)
        await pass(0.001)
      }
      const [dead] = await untilAll(id, 1, ({ status }) => status === 'failed')
      expect(dead).toMatchObject({ attempt: 6, nextAttemptAt: null, deliveredAt: null, eventId })
      expect(dead).toMatchObject({ failureClass: '5xx', responseStatus: 503, errorMessage: 'HTTP 503: busy' })
      await pass(86_400)
      await well.beats()
      const at = to.got.map(({ headers }) => Number(headers['x-service-timestamp']))
      expect(at.slice(1).map((time, n) => time - at[n]!)).toEqual([1000, 2000, 4000, 8000, 16_000])
      expect(new Set(to.got.map(({ headers }) => headers['x-service-delivery-id']))).toEqual(
        new Set([dead!.id]),
      )
      const deadLetters = await client.call(api.webhookDeliveries.dead, { query: {} })
      expect(deadLetters.data.map((one) => one.id)).toEqual([dead!.id])
      expect((await client.call(api.webhooks.show, { params: { id } })).failureCount).toBe(6)
    })

    it('that sends Retry-After is given that time, at least the usual and at most a day', async () => {
      const { clock, hook, raise, untilAll, to } = await start()
      const httpDate = (seconds: number) => new Date(addSeconds(clock(), seconds)).toUTCString()
      const asked: [value: string, wait: number][] = [
        ['120', 120],
        [' 7 ', 7],
        [httpDate(300), 300],
        [httpDate(-300), 1],
        ['0', 1],
        ['999999999', 86_400],
        [httpDate(5 * 86_400), 86_400],
        ['-5', 1],
        ['soon', 1],
      ]
      for (const [value, wait] of asked) {
        to.answer = () => ({ status: 429, headers: { 'retry-after': value } })
        const id = await hook(to.url, { events: ['patch.failed'] })
        await raise(1, 'patch.failed')
        const [one] = await untilAll(id, 1, ({ attempt }) => attempt === 1)
        expect({ value, next: one!.nextAttemptAt }).toEqual({ value, next: addSeconds(clock(), wait) })
      }
    })

    it('that sent Retry-After is tried again when that time has passed', async () => {
      const { hook, raise, untilAll, pass, to } = await start()
      to.answer = () => ({ status: 503, headers: { 'retry-after': '120' } })
      const id = await hook(to.url)
      await raise()
      await untilAll(id, 1, ({ attempt }) => attempt === 1)
      to.answer = () => ({ status: 200 })
      await pass(120)
      await untilAll(id, 1, ({ status }) => status === 'delivered')
    })

    it('that answers 410 is sent nothing until a user sets the webhook active; it is audited', async () => {
      const { opened: asked, open: answer } = gate()
      const fixture = await start(() => ({ status: 410, when: asked }))
      const { client, orgId, hook, raise, untilAll, to } = fixture
      const well = await healthy(certificate, fixture)
      const id = await hook(to.url, { name: 'gone' })
      const params = { id }
      await raise(20)
      await to.until(4)
      await well.beats()
      answer()
      await until(async () => (await client.call(api.webhooks.show, { params })).status === 'failed')
      await well.beats()
      await well.beats()
      expect(to.got).toHaveLength(4)
      const { data } = await client.call(api.auditLogs.list, { query: { orgId, action: 'webhook.fail' } })
      expect(data).toHaveLength(1)
      expect(data[0]).toMatchObject({
        category: 'system',
        user: { role: 'system' },
        resource: { id, name: 'gone' },
        details: { reason: 'The receiver answered 410 Gone' },
      })

      to.answer = () => ({ status: 204 })
      await client.call(api.webhooks.update, { params, body: { status: 'active' } })
      const all = await untilAll(id, 20, ({ nextAttemptAt }) => nextAttemptAt === null)
      expect(all.map(({ status }) => status).sort()).toEqual([
        ...Array(16).fill('delivered'),
        ...Array(4).fill('failed'),
      ])
      expect(to.got).toHaveLength(20)
    })
  })
})
