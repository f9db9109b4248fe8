import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { buildWorld } from '../world.ts'

const secret = 'hush-hush-7'
const free = { phone: '1', vpn: [{ apiToken: secret }], password: secret }

inTurn((open) => {
  describe('the audit entry of an object of any form', () => {
    it('hides what is taken for a secret, when it is made and when it is changed', async () => {
      const service = await startService(open)
      const { orgs, partners, tokens } = await buildWorld(service)
      const acme = service.client(tokens.acme)
      const news = await newEntries(service)
      const orgId = orgs.bakery.id
      const site = await acme.call(api.sites.create, {
        body: { orgId, name: 'Annex', contact: free, settings: free },
      })
      await acme.call(api.sites.update, {
        params: { id: site.id },
        body: { contact: { ...free, password: `${secret}-2` } },
      })
      await acme.call(api.orgs.create, {
        body: { name: 'Florist', slug: 'florist', settings: free, partnerId: partners.acme },
      })
      const script = await acme.call(api.scripts.create, {
        body: { orgId, name: 'One', osTypes: ['linux'], language: 'bash', content: 'true', parameters: free },
      })
      await acme.call(api.scripts.update, {
        params: { id: script.id },
        body: { parameters: { ...free, password: `${secret}-2` } },
      })
      const entries = await news()
      expect(entries.map(({ action }) => action)).toEqual([
        'site.create',
        'site.update',
        'organization.create',
        'script.create',
        'script.update',
      ])
      expect(JSON.stringify(entries)).not.toContain(secret)
      const hidden = { phone: '1', vpn: [{ apiToken: '********' }], password: '********' }
      expect(entries.map(({ details }) => details)).toMatchObject([
        { after: { contact: hidden, settings: hidden } },
        { before: { contact: { password: '********' } }, after: { contact: { password: '********' } } },
        { after: { settings: hidden } },
        { after: { parameters: hidden } },
        { before: { parameters: hidden }, after: { parameters: hidden } },
      ])
    })
  })
})
