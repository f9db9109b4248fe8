import { Webhook } from 'standardwebhooks'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { hasOpenssl, testCertificate } from '../cli/way.ts'
import { onEveryDatabase } from '../databases.ts'
import { type ServiceOptions, startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { reaching, receiver } from './receiver.ts'

const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'

describe.skipIf(!hasOpenssl)('deliveries', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    const start = async (options: ServiceOptions = {}) => {
      const service = await startService(open, {
        ...options,
        env: { ...reaching(certificate), ...options.env },
      })
      const world = await buildWorld(service)
      const system = service.client(world.tokens.system)
      const client = service.client(world.tokens.bakery)
      return { service, world, system, client, orgId: world.orgs.bakery.id }
    }

    it('an event reaches the webhooks that ask for it, signed both ways', async () => {
      const { system, client, orgId } = await start()
      const to = await receiver(certificate)
      const hook = await client.call(api.webhooks.create, {
        body: {
          name: 'a',
          url: `${to.url}/in?x=1`,
          secret,
          events: ['patch.installed'],
          headers: [{ key: 'X-Own', value: 'mine' }],
        },
      })
      const event = await system.call(api.events.create, {
        body: { orgId, type: 'patch.installed', data: { patchId: 'é' } },
      })
      await system.call(api.events.create, { body: { orgId, type: 'patch.failed' } })
      const [got] = await to.until(1)
      expect(got!.path).toBe('/in?x=1')
      expect(got!.event).toEqual({ ...event, data: { patchId: 'é' } })
      expect(Object.keys(got!.event)).toEqual(['id', 'type', 'timestamp', 'orgId', 'data'])
      expect(new Webhook(secret).verify(got!.body, got!.headers as Record<string, string>)).toEqual(
        got!.event,
      )
      expect(got!.headers).toMatchObject({ 'x-own': 'mine', 'x-service-sequence': '1' })
      const params = { id: hook.id }
      await expect
        .poll(async () => (await client.call(api.webhooks.show, { params })).deliveryStats)
        .toMatchObject({ total: 1, delivered: 1 })
    })
  })
})
