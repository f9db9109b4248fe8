import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Dialect } from '../../src/storage/db.ts'
import type { Db } from '../../src/storage/open.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { withoutKey } from '../lost-key.ts'
import { buildWorld } from '../world.ts'
import { reaching, receiver } from './receiver.ts'

/** From now on the database refuses to store `text` as the reply of a receiver. */
async function refuse(db: Db, kind: Dialect, text: string): Promise<void> {
  const condition = sql.lit(text)
  if (kind === 'sqlite') {
    await sql`create trigger poison before update on webhook_deliveries when new.response_body = ${condition}
      begin select raise(abort, 'poisoned'); end`.execute(db)
    return
  }
  await sql`create function poison() returns trigger language plpgsql as $$ begin
    raise exception 'poisoned'; end $$`.execute(db)
  await sql`create trigger poison before update on webhook_deliveries for each row
    when (new.response_body = ${condition}) execute function poison()`.execute(db)
}

describe.skipIf(!hasOpenssl)('one bad row never blocks others', () => {
  const certificate = testCertificate()
  onEveryDatabase((kind, open) => {
    async function start() {
      const service = await startService(open, { env: reaching(certificate) })
      const world = await buildWorld(service)
      const system = service.client(world.tokens.system)
      const to = await receiver(certificate)
      const of = (name: 'bakery' | 'garage') => {
        const client = service.client(world.tokens[name])
        const orgId = world.orgs[name].id
        const hook = (path: string) =>
          client.call(api.webhooks.create, {
            body: {
              name: path,
              url: `${to.url}/${path}`,
              secret: 'a secret of the receiver',
              events: ['patch.installed'],
            },
          })
        const raise = () =>
          system.call(api.events.create, { body: { orgId, type: 'patch.installed', data: {} } })
        const statuses = async (id: string) => {
          const { data } = await client.call(api.webhookDeliveries.list, { params: { id } })
          return data.map(({ status, errorMessage }) => ({ status, errorMessage }))
        }
        return { client, hook, raise, statuses }
      }
      return { service, world, to, bakery: of('bakery'), garage: of('garage') }
    }

    it.each([999, 1000, 499, 500])(
      'a reply with a surrogate pair across position %d is stored',
      async (place) => {
        const { to, bakery } = await start()
        to.answer = () => ({
          status: place < 600 ? 400 : 200,
          body: `${'x'.repeat(place)}😀${'y'.repeat(600)}`,
        })
        const { id } = await bakery.hook('in')
        await bakery.raise()
        const status = place < 600 ? 'retrying' : 'delivered'
        await expect.poll(() => bakery.statuses(id), { timeout: 10_000 }).toMatchObject([{ status }])
      },
    )

    it('an outcome that the database refuses is set aside, and the others are recorded', async () => {
      const { service, to, bakery, garage } = await start()
      to.answer = ({ path }) => ({ status: 200, body: path === '/bad' ? 'poison' : 'fine' })
      await service.storage.write((tx) => refuse(tx, kind, 'poison'))
      const bad = await bakery.hook('bad')
      const good = await bakery.hook('good')
      const other = await garage.hook('other')
      for (let n = 0; n < 3; n++) await Promise.all([bakery.raise(), garage.raise()])
      const three = (one: object) => [one, one, one]
      await expect
        .poll(() => garage.statuses(other.id), { timeout: 10_000 })
        .toMatchObject(three({ status: 'delivered' }))
      await expect
        .poll(() => bakery.statuses(good.id), { timeout: 10_000 })
        .toMatchObject(three({ status: 'delivered' }))
      const errorMessage = expect.stringMatching(/could not be stored/)
      await expect
        .poll(() => bakery.statuses(bad.id), { timeout: 10_000 })
        .toMatchObject(three({ status: 'failed', errorMessage }))
    })

    it('a webhook that cannot be decrypted is marked, can be changed, and delays no other', async () => {
      const { service, world, to, bakery } = await start()
      const lost = await bakery.hook('lost')
      const doomed = await bakery.hook('doomed')
      await service.close()
      const again = await withoutKey(service, {
        env: { ...reaching(certificate), METRICS_TOKEN: 'metrics' },
      })
      const client = again.client(world.tokens.bakery)
      const { id: fine } = await again.client(world.tokens.garage).call(api.webhooks.create, {
        body: { name: 'fine', url: `${to.url}/fine`, events: ['patch.installed'] },
      })
      const system = again.client(world.tokens.system)
      for (const name of ['bakery', 'garage'] as const) {
        const body = { orgId: world.orgs[name].id, type: 'patch.installed' as const, data: {} }
        await system.call(api.events.create, { body })
      }
      const deliveries = (token: string, id: string) =>
        again.client(token).call(api.webhookDeliveries.list, { params: { id } })
      await expect
        .poll(async () => (await deliveries(world.tokens.garage, fine)).data, { timeout: 10_000 })
        .toMatchObject([{ status: 'delivered' }])
      await expect
        .poll(async () => (await deliveries(world.tokens.bakery, lost.id)).data, { timeout: 10_000 })
        .toMatchObject([{ status: 'retrying', errorMessage: expect.stringContaining('Cannot be decrypted') }])

      const unreadable = ['url', 'secret', 'headers']
      const { data } = await client.call(api.webhooks.list, {})
      const own = data.filter(({ id }) => id === lost.id || id === doomed.id)
      expect(own).toMatchObject([
        { unreadable, hasSecret: true },
        { unreadable, hasSecret: true },
      ])
      await client.call(api.webhooks.remove, { params: { id: doomed.id } })
      const params = { id: lost.id }
      const renamed = await client.call(api.webhooks.update, { params, body: { name: 'found' } })
      expect(renamed).toMatchObject({ name: 'found', unreadable })
      await client.call(api.webhooks.rotateSecret, { params, body: {} })
      const body = { url: `${to.url}/found`, headers: [] }
      expect(await client.call(api.webhooks.update, { params, body })).toMatchObject({ unreadable: [] })
      await expect
        .poll(async () => (await deliveries(world.tokens.bakery, lost.id)).data, { timeout: 20_000 })
        .toMatchObject([{ status: 'delivered' }])

      const metrics = await fetch(`${again.url}/metrics`, { headers: { authorization: 'Bearer metrics' } })
      expect(await metrics.text()).toMatch(/svc_unreadable_values_total\{column="webhooks\.secret"\} [1-9]/)
    })

    it('an SSO provider that cannot be decrypted is marked, and can be changed and deleted', async () => {
      const { service, world } = await start()
      const client = service.client(world.tokens.bakery)
      const made = await client.call(api.ssoProviders.create, {
        body: { name: 'Keycloak', type: 'oidc', clientId: 'svc', clientSecret: 'a secret' },
      })
      await service.close()
      const again = await withoutKey(service)
      const after = again.client(world.tokens.bakery)
      const { data } = await after.call(api.ssoProviders.list, {})
      const params = { id: made.data.id }
      expect(data.find(({ id }) => id === params.id)).toMatchObject({
        hasClientSecret: true,
        unreadable: ['clientSecret'],
      })
      const renamed = await after.call(api.ssoProviders.update, { params, body: { name: 'Other' } })
      expect(renamed.data).toMatchObject({ name: 'Other', unreadable: ['clientSecret'] })
      const set = await after.call(api.ssoProviders.update, { params, body: { clientSecret: 'another' } })
      expect(set.data).toMatchObject({ unreadable: [], hasClientSecret: true })
      await after.call(api.ssoProviders.remove, { params })
    })
  })
})
