import { describe, expect, it } from 'vitest'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { raw, rawTcp } from './misbehaving.ts'
import { reaching, receiver } from './receiver.ts'
import { gate, handOn, healthy, stage } from './webhook-fixture.ts'

describe.skipIf(!hasOpenssl)('a slow receiver', () => {
  const certificate = testCertificate()
  onEveryDatabase((kind, open) => {
    it('delays only itself: others get everything while it holds its requests', async () => {
      const fixture = await stage(open, certificate)
      const { opened: asked, open: answer } = gate()
      const slow = await receiver(certificate, () => ({ status: 204, when: asked }))
      const id = await fixture.hook(slow.url)
      await fixture.hook(await rawTcp(() => {}), { name: 'shakes no hands' })
      await fixture.hook(await raw(certificate, () => {}), { name: 'says nothing' })
      const halfWay = 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc'
      await fixture.hook(await raw(certificate, (socket) => void socket.write(halfWay)), { name: 'half way' })
      const well = await healthy(certificate, fixture)
      await fixture.raise(20)
      await slow.until(4)
      await fixture.raise(40, 'user.login')
      await well.to.until(40, 20_000)
      await fixture.untilAll(well.id, 40, ({ status }) => status === 'delivered')
      expect([slow.got.length, slow.open, slow.max]).toEqual([4, 4, 4])
      expect(await fixture.stats(id)).toMatchObject({ total: 20, pending: 20, delivered: 0 })
      answer()
      await fixture.untilAll(id, 20, ({ status }) => status === 'delivered')
      expect(slow.max).toBe(4)
    })

    it.runIf(kind === 'postgres')('gets at most four requests at once from all processes', async () => {
      const fixture = await stage(open, certificate)
      const other = await serviceOn(fixture.service, { env: reaching(certificate) })
      const there = handOn(other.client(fixture.token), fixture.orgId)
      const well = await healthy(certificate, fixture)
      const { opened: asked, open: answer } = gate()
      const receivers = await Promise.all(
        [1, 2, 3].map(() => receiver(certificate, () => ({ status: 204, when: asked }))),
      )
      const hooks = await Promise.all(receivers.map(({ url }) => fixture.hook(url)))
      const events = (await Promise.all([fixture.raise(20), there.raise(20)])).flat()
      for (const to of receivers) await to.until(4)
      await well.beats()
      await there.raise(1, 'user.login')
      await well.to.until(2)
      expect(receivers.map(({ got, open }) => [got.length, open])).toEqual([
        [4, 4],
        [4, 4],
        [4, 4],
      ])
      answer()
      for (const id of hooks) await fixture.untilAll(id, 40, ({ status }) => status === 'delivered')
      for (const to of receivers) {
        expect(to.max).toBe(4)
        expect(to.ids().sort()).toEqual(events.sort())
      }
    })
  })
})
