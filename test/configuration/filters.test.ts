import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const prune = { prune: true, pruneLimit: 100 }

inTurn((open) => {
  describe('a site that a saved filter has a condition on', () => {
    const start = async () => {
      const service = await startService(open)
      const world = await buildWorld(service)
      const acme = configurationOf(service)(world.tokens.acme)
      const sites = [{ org: 'bakery', name: 'Annex' }]
      await acme.apply({ sites })
      const all = (await acme.client.call(api.sites.list, { query: { limit: 100 } })).data
      const { id } = all.find(({ name }) => name === 'Annex')!
      const filters = [
        {
          org: 'bakery',
          name: 'In the annex',
          conditions: {
            operator: 'AND',
            conditions: [{ field: 'siteId', operator: 'equals', value: id }],
          },
        },
      ]
      await acme.apply({ sites, filters })
      return { acme, sites, filters }
    }

    it('is not pruned, as the filter would select nothing without a word', async () => {
      const { acme, filters } = await start()
      await expect(acme.plan({ sites: [], filters }, prune)).rejects.toMatchObject({
        code: 'invalid_request',
        details: [{ message: expect.stringContaining('still used by 1 saved filter') }],
      })
    })

    it('is pruned together with it', async () => {
      const { acme } = await start()
      const { changes } = await acme.apply({ sites: [], filters: [] }, prune)
      expect(changes.map(({ action, name }) => [action, name])).toEqual([
        ['delete', 'In the annex'],
        ['delete', 'Annex'],
      ])
    })
  })
})
