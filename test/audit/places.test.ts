import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { buildWorld } from '../world.ts'
import { happening, recorded } from './rows.ts'

const naming = (path: string) =>
  expect.objectContaining({
    status: 400,
    details: expect.arrayContaining([expect.objectContaining({ path })]),
  })

inTurn((open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const actions = ['one.a', 'two.a', 'one.b', 'two.b', 'one.c']
    const list = (token: string, query: Record<string, unknown>) =>
      service.client(token).call(api.auditLogs.list, { query: query as never })
    const { head } = await list(world.tokens.bakery, { after: '0', limit: '1' })
    // Older than the existing entries, as the order is that of the chain.
    const at = '2020-01-01T00:00:00.000Z'
    await recorded(
      service,
      actions.map((action) => [happening(bakery.id, { action }), at]),
    )
    // Reading the list has added an entry.
    return { service, world, bakery, list, start: head! + 1, mine: world.tokens.bakery }
  }

  describe('an audit log that is read from a position', () => {
    it('gives the entries after it in chain order, together with the head of the chain', async () => {
      const { list, mine, start: from, bakery } = await start()
      const page = await list(mine, { after: String(from), limit: '3' })
      expect(page.data.map(({ action }) => action)).toEqual(['one.a', 'two.a', 'one.b'])
      expect(page.data.map(({ seq }) => seq)).toEqual([from + 1, from + 2, from + 3])
      expect(page.head).toBe(from + 5)
      const cursor = page.pagination.nextCursor!
      const rest = await list(mine, { after: String(from), limit: '3', cursor })
      expect(rest.data.map(({ action }) => action)).toEqual(['two.b', 'one.c'])
      expect(rest.pagination.nextCursor).toBeNull()
      const narrowed = await list(mine, { after: String(from), action: 'two.', orgId: bakery.id })
      expect(narrowed.data.map(({ seq }) => seq)).toEqual([from + 2, from + 4])
      // The filtered request was a different one, and added an entry.
      expect(await list(mine, { after: '9999' })).toMatchObject({ data: [], head: from + 6 })
      expect(await list(mine, {})).not.toHaveProperty('head')
    })

    it('is one chain: the named one, the own one, or that of the system in system scope', async () => {
      const { service, list, world } = await start()
      const { system, acme, garage } = world.tokens
      await recorded(service, [[happening(null, { action: 'of.system' }), '2020-01-01T00:00:00.000Z']])
      const ofSystem = await list(system, { after: '0' })
      expect(new Set(ofSystem.data.map(({ orgId }) => orgId))).toEqual(new Set([null]))
      expect(ofSystem.data.map(({ action }) => action)).toContain('of.system')
      const { garage: other } = world.orgs
      const ofGarage = await list(garage, { after: '0' })
      expect(ofGarage.data.every(({ orgId }) => orgId === other.id)).toBe(true)
      await expect(list(acme, { after: '0' })).rejects.toEqual(naming('query.orgId'))
      await expect(list(garage, { after: 'x' })).rejects.toEqual(naming('query.after'))
      await expect(list(garage, { after: '0', cursor: 'x' })).rejects.toEqual(naming('query.cursor'))
    })

    it('logs one read access for a reader who follows it, not one per request', async () => {
      const { service, list, mine } = await start()
      const entriesSince = await newEntries(service)
      for (const after of ['0', '1', '2', '3']) await list(mine, { after, action: 'one.' })
      expect((await entriesSince()).map(({ action }) => action)).toEqual(['data.access'])
    })
  })
})
