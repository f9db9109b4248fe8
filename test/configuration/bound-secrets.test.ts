import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { OutboundFailure } from '../../src/core/outbound.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { endpointsOf, issuer, oidc, start as startProviders } from '../sso/provider-fixture.ts'
import { buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const hook = {
  name: 'Tickets',
  url: 'https://hooks.example.com/in',
  secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  events: ['device.enrolled' as const],
  headers: [{ key: 'Authorization', value: 'Bearer hush' }],
}
const elsewhere = 'https://elsewhere.example.net/in'

inTurn((open) => {
  const start = async () => {
    const outbound = {
      send: async () => {
        throw new OutboundFailure('refused', 'nothing is sent')
      },
      locateHost: async () => ({ network: 'public' }) as const,
      close: async () => {},
    }
    const service = await startService(open, { outside: { outbound } })
    const world = await buildWorld(service)
    const bakery = configurationOf(service)(world.tokens.bakery)
    const theHook = async () =>
      (await bakery.client.call(api.webhooks.list, {})).data.find((one) => one.name === hook.name)!
    return { service, bakery, theHook }
  }

  describe('hidden headers of a webhook', () => {
    it('stay at their origin where no key of this process opens them', async () => {
      const { service, bakery, theHook } = await start()
      await bakery.client.call(api.webhooks.create, { body: hook })
      const { id } = await theHook()
      const newer = createCipher(['a key that this process does not have yet'])
      const headers = newer.encrypt(JSON.stringify(hook.headers), `webhooks.headers.${id}`)
      await service.storage.write((tx) =>
        tx.updateTable('webhooks').set({ headers }).where('id', '=', id).execute(),
      )
      const moved = bakery.client.call(api.webhooks.update, { params: { id }, body: { url: elsewhere } })
      await expect(moved).rejects.toMatchObject({ status: 400, details: [{ path: 'body.headers' }] })
    })

    it('are moved by files that have them, in a plan without secrets as well', async () => {
      const { bakery } = await start()
      await bakery.apply({ webhooks: [hook] })
      const { secret: _, headers: __, ...bare } = { ...hook, url: elsewhere }
      const leftOut = (field: string) => ({ section: 'webhooks' as const, object: 0, field })
      const { changes } = await bakery.client.call(api.configuration.plan, {
        query: {},
        body: { document: { webhooks: [bare] }, withoutSecrets: [leftOut('secret'), leftOut('headers')] },
      })
      expect(changes).toMatchObject([
        { action: 'update', before: { url: hook.url }, after: { url: elsewhere } },
      ])
      expect(Object.keys(changes[0]!.after!)).toEqual(['url'])
    })

    it('are not sent to an address that the file does not name', async () => {
      const { bakery, theHook } = await start()
      await bakery.apply({ webhooks: [hook] })
      const { url: _, secret: __, ...unplaced } = hook
      const { id } = await theHook()
      await bakery.client.call(api.webhooks.update, { params: { id }, body: { url: elsewhere, headers: [] } })
      await expect(bakery.plan({ webhooks: [unplaced] })).rejects.toMatchObject({
        status: 400,
        details: [
          { path: 'body.document.webhooks.0.url', message: 'is required with headers, which goes there' },
        ],
      })
    })

    it('are gone after a rollback that leads elsewhere, which says nothing else of them', async () => {
      const { bakery, theHook } = await start()
      await bakery.apply({ webhooks: [hook] })
      const headers = [{ key: 'Authorization', value: 'Bearer another' }]
      const { applyId } = await bakery.apply({ webhooks: [{ ...hook, url: elsewhere, headers }] })
      const params = { id: applyId }
      const { version, lost } = await bakery.client.call(api.configurationApplies.plan, { params, body: {} })
      expect(lost.map(({ reason }) => reason)).toEqual([expect.stringContaining('has no headers any more')])
      await bakery.client.call(api.configurationApplies.rollback, { params, body: { version } })
      expect((await theHook()).headers).toEqual([])
    })
  })

  describe('the client secret of an identity provider', () => {
    it('is not sent to a token URL that the file does not name, whether the plan has it or not', async () => {
      const { service, world } = await startProviders(open)
      const acme = configurationOf(service)(world.tokens.acme)
      const whole = { org: 'bakery', ...oidc, ...endpointsOf(issuer), clientSecret: 'hush-hush' }
      await acme.apply({ ssoProviders: [whole] })
      const { tokenUrl: _, ...unplaced } = whole
      const { clientSecret: __, ...bare } = unplaced
      const leftOut = { section: 'ssoProviders' as const, object: 0, field: 'clientSecret' }
      const refused = {
        status: 400,
        details: [
          {
            path: 'body.document.ssoProviders.0.tokenUrl',
            message: 'is required with clientSecret, which goes there',
          },
        ],
      }
      await expect(acme.plan({ ssoProviders: [unplaced] })).rejects.toMatchObject(refused)
      const body = { document: { ssoProviders: [bare] }, withoutSecrets: [leftOut] }
      await expect(acme.client.call(api.configuration.plan, { query: {}, body })).rejects.toMatchObject(
        refused,
      )
      const { changes } = await acme.plan({ ssoProviders: [{ ...bare, tokenUrl: whole.tokenUrl }] })
      expect(changes).toEqual([])
    })

    it('stays with its token URL, also where another is named by hand, by files or by a rollback', async () => {
      const { service, world, client, create, change } = await startProviders(open)
      const tokenUrl = 'https://login.example.net/token'
      const { id } = await create()
      await change(id, { issuer, clientSecret: 'hush-hush' })
      const refused = { status: 400, details: [{ path: 'body.clientSecret' }] }
      await expect(change(id, { tokenUrl })).rejects.toMatchObject(refused)
      await change(id, { tokenUrl: null })
      await expect(change(id, { tokenUrl })).rejects.toMatchObject(refused)
      await change(id, { tokenUrl, clientSecret: 'hush-hush' })
      await client.call(api.ssoProviders.remove, { params: { id } })
      const acme = configurationOf(service)(world.tokens.acme)
      const whole = { org: 'bakery', ...oidc, ...endpointsOf(issuer) }
      await acme.apply({ ssoProviders: [whole] })
      const { clientSecret: _, ...bare } = whole
      await expect(acme.plan({ ssoProviders: [{ ...bare, tokenUrl }] })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.document.ssoProviders.0.clientSecret' }],
      })
      const { applyId, changes } = await acme.apply({ ssoProviders: [{ ...whole, tokenUrl }] })
      expect(changes).toMatchObject([
        { before: { tokenUrl: endpointsOf(issuer).tokenUrl }, after: { tokenUrl } },
      ])
      const params = { id: applyId }
      const { version, lost } = await acme.client.call(api.configurationApplies.plan, { params, body: {} })
      expect(lost).toMatchObject([{ reason: expect.stringContaining('has no clientSecret any more') }])
      await acme.client.call(api.configurationApplies.rollback, { params, body: { version } })
      const [provider] = (await client.call(api.ssoProviders.list, {})).data
      expect(provider).toMatchObject({ tokenUrl: endpointsOf(issuer).tokenUrl, hasClientSecret: false })
    })
  })
})
