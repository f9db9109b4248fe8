import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  describe('organizations and sites', () => {
    it('are visible to authorized callers only', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const names = async (token: string) =>
        (await service.client(token).call(api.orgs.list)).data.map((org) => org.name)
      expect(await names(tokens.system)).toEqual(['bakery', 'garage', 'harbor'])
      expect(await names(tokens.acme)).toEqual(['bakery', 'garage'])
      expect(await names(tokens.acmeBakery)).toEqual(['bakery'])
      expect(await names(tokens.acmeNone)).toEqual([])
      expect(await names(tokens.bakery)).toEqual(['bakery'])

      const globex = service.client(tokens.globex)
      const show = (id: string) => globex.call(api.orgs.show, { params: { id } })
      await expect(show(orgs.bakery.id)).rejects.toEqual(refused(404, 'not_found'))
      const site = (id: string) => globex.call(api.sites.show, { params: { id } })
      await expect(site(orgs.bakery.siteId)).rejects.toEqual(refused(403, 'site_access_denied'))
      expect((await globex.call(api.devices.list)).data.map((device) => device.hostname)).toEqual([
        'harbor-pc',
      ])
    })
  })
})
