import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const quota = 60
const numbered = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => from + n)

inTurn((open) => {
  describe('a quota that is used up', () => {
    const start = async () => {
      const service = await startService(open, { env: { QUOTA_SITES: String(quota) } })
      const world = await buildWorld(service)
      const bakery = configurationOf(service)(world.tokens.bakery)
      // One site is of the world.
      await bakery.apply({ sites: numbered(1, quota).map((n) => ({ name: `s${n}` })) })
      const create = () =>
        bakery.client.call(api.sites.create, { body: { orgId: world.orgs.bakery.id, name: 'more' } })
      return { bakery, create }
    }
    const exceeded = { code: 'quota_exceeded' }
    /** Half of the sites take the names of the other half, which is deleted for that: there is room for another one. */
    const withRoom = {
      sites: [
        ...numbered(1, 30).map((n) => ({ name: `s${n + 30}`, renamedFrom: `s${n}` })),
        { name: 'fresh' },
      ],
    }
    const prune = { prune: true, pruneLimit: quota }

    it('has no more room after a plan that would have made some', async () => {
      const { bakery, create } = await start()
      await expect(create()).rejects.toMatchObject(exceeded)
      expect((await bakery.plan(withRoom, prune)).totals).toMatchObject({ create: 1, delete: 30 })
      await expect(create()).rejects.toMatchObject(exceeded)
    })

    it('has the room that an apply has made', async () => {
      const { bakery, create } = await start()
      await bakery.apply(withRoom, prune)
      expect((await create()).name).toBe('more')
    })

    it('holds within one apply', async () => {
      const { bakery } = await start()
      const { changes } = await bakery.plan({ sites: [{ name: 'one' }, { name: 'two' }] })
      expect(changes.map(({ refused }) => refused)).toEqual([
        expect.stringContaining('The quota of 60 sites is used up'),
        expect.stringContaining('The quota of 60 sites is used up'),
      ])
    })
  })
})
