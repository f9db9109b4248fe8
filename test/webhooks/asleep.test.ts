import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { addSeconds } from '../../src/core/time.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { until } from '../daemon/process.ts'
import { onEveryDatabase } from '../databases.ts'
import { serviceOn, testClock } from '../harness.ts'
import { reaching, receiver } from './receiver.ts'
import { gate, handOn, healthy, stage } from './webhook-fixture.ts'

describe.skipIf(!hasOpenssl)('a service that was suspended for longer than it holds its queues', () => {
  const certificate = testCertificate()
  onEveryDatabase((kind, open) => {
    it('sends nothing twice, and never more than four at once', async () => {
      const clock = testClock()
      const fixture = await stage(open, certificate, { clock })
      const { opened: asked, open: answer } = gate()
      const to = await receiver(certificate, () => ({ status: 204, when: asked }))
      const well = await healthy(certificate, fixture)
      const id = await fixture.hook(to.url)
      const events = await fixture.raise(20)
      await to.until(4)
      for (let n = 0; n < 2; n++) {
        clock.forward(60)
        const alive = fixture.service.storage.read.selectFrom('webhook_workers').selectAll()
        await until(async () => (await alive.execute()).some((one) => one.alive_until > clock()))
        await well.beats()
      }
      expect(to.got).toHaveLength(4)
      answer()
      await fixture.untilAll(id, 20, ({ status }) => status === 'delivered')
      expect(to.max).toBe(4)
      expect(to.ids().sort()).toEqual(events.sort())
    })

    it.runIf(kind === 'postgres')(
      'leaves the queues that another process has taken over to that process',
      async () => {
        const clock = testClock()
        const fixture = await stage(open, certificate, { clock })
        const { opened: asked, open: answer } = gate()
        const to = await receiver(certificate, () => ({ status: 204, when: asked }))
        const id = await fixture.hook(to.url)
        const events = await fixture.raise(20)
        await to.until(4)
        const workers = fixture.service.storage.read.selectFrom('webhook_workers').selectAll()
        const [asleep] = await workers.execute()

        const other = await serviceOn(fixture.service, {
          env: reaching(certificate),
          clock: testClock(addSeconds(clock(), 31)),
        })
        await to.until(8)
        clock.forward(60)
        // The expired worker is deleted from the list, and the process is in it again once it wakes up.
        await until(async () => (await workers.execute()).some((one) => one.id === asleep!.id))
        const well = await healthy(certificate, handOn(other.client(fixture.token), fixture.orgId))
        await well.beats()
        answer()
        await fixture.untilAll(id, 20, ({ status }) => status === 'delivered')
        await well.beats()
        expect(to.got).toHaveLength(24)
        expect(new Set(to.ids())).toEqual(new Set(events))
        const shown = await fixture.client.call(api.webhooks.show, { params: { id } })
        expect([shown.successCount, shown.failureCount]).toEqual([20, 0])
      },
    )
  })
})
