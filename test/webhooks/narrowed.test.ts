import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { callOf, toWire } from '../laws/calls.ts'
import { buildStage } from '../laws/fixture.ts'
import { Line } from '../laws/wire.ts'

inTurn((open) => {
  describe('a member restricted to a site or a device group', () => {
    it('cannot use webhooks, which report on every device', async () => {
      const service = await startService(open)
      const { strangers, victim } = await buildStage(service)
      const narrowed = strangers.filter(({ name }) => name.includes('narrowed'))
      expect(narrowed).toHaveLength(2)
      const line = new Line(service.url)
      const { webhooks, webhookDeliveries } = api
      const before = await service.storage.read.selectFrom('webhooks').selectAll().execute()
      for (const { name, token } of narrowed) {
        for (const entry of entriesOf({ webhooks, webhookDeliveries }).map((one) => one.entry)) {
          const answer = await line.send(toWire(entry, callOf(entry, victim), await token()))
          expect([name, entry.path, answer.status]).toEqual([name, entry.path, 403])
          expect(answer.text).toContain('Your access is limited to some sites or device groups')
        }
      }
      await line.close()
      expect(await service.storage.read.selectFrom('webhooks').selectAll().execute()).toEqual(before)
    })

    it('can neither rotate nor delete an enrollment key of no site', async () => {
      const service = await startService(open)
      const { strangers, world } = await buildStage(service)
      const system = service.client(world.tokens.system)
      const key = await system.call(api.enrollmentKeys.create, {
        body: { orgId: world.orgs.bakery.id, name: 'Everywhere' },
      })
      const params = { id: key.id }
      const narrow = strangers.find(({ name }) => name.includes('another site'))!
      const client = service.client(await narrow.token())
      const denied = { status: 403, code: 'site_access_denied' }
      await expect(client.call(api.enrollmentKeys.rotate, { params })).rejects.toMatchObject(denied)
      await expect(client.call(api.enrollmentKeys.remove, { params })).rejects.toMatchObject(denied)
      const own = await client.call(api.enrollmentKeys.rotate, {
        params: { id: narrow.own.enrollment_key },
      })
      expect(own.id).toBe(narrow.own.enrollment_key)
    })
  })
})
