import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { buildWorld } from '../world.ts'

inTurn((open) => {
  describe('a filtered list of the entries of several organizations', () => {
    const start = async () => {
      const clock = testClock()
      const service = await startService(open, { clock })
      const { orgs, tokens } = await buildWorld(service)
      const system = service.client(tokens.system)
      for (let n = 0; n < 12; n++) {
        clock.forward(1)
        for (const { id } of [orgs.bakery, orgs.garage, orgs.harbor])
          await system.call(api.sites.create, { body: { orgId: id, name: `annex ${n}` } })
      }
      return { service, orgs, tokens }
    }
    type Client = ReturnType<TestService['client']>
    const filter = { resource: 'annex' }
    const pagesByNumber = async (client: Client) => {
      const found: string[] = []
      for (let page = 1; ; page++) {
        const { data } = await client.call(api.auditLogs.list, { query: { ...filter, limit: 5, page } })
        found.push(...data.map(({ id }) => id))
        if (data.length < 5) return found
      }
    }
    const pagesByCursor = async (client: Client) => {
      const found: string[] = []
      for (let cursor: string | undefined; ; ) {
        const { data, pagination } = await client.call(api.auditLogs.list, {
          query: { ...filter, limit: 5, ...(cursor !== undefined && { cursor }) },
        })
        found.push(...data.map(({ id }) => id))
        if (pagination.nextCursor === null) return found
        cursor = pagination.nextCursor
      }
    }

    it('has those of its organizations alone, newest first, by number and by cursor', async () => {
      const { service, orgs, tokens } = await start()
      const acme = service.client(tokens.acme)
      const all = (
        await service.client(tokens.system).call(api.auditLogs.list, { query: { ...filter, limit: 100 } })
      ).data
      const own = new Set<string>([orgs.bakery.id, orgs.garage.id])
      const expected = all.filter(({ orgId }) => own.has(orgId!)).map(({ id }) => id)
      expect(expected).toHaveLength(24)
      expect(await pagesByNumber(acme)).toEqual(expected)
      expect(await pagesByCursor(acme)).toEqual(expected)
    })

    it('has those of the selected organizations of a member', async () => {
      const { service, orgs, tokens } = await start()
      const some = service.client(tokens.acmeBakery)
      const none = service.client(tokens.acmeNone)
      const { data } = await some.call(api.auditLogs.list, { query: { ...filter, limit: 100 } })
      expect(new Set(data.map(({ orgId }) => orgId))).toEqual(new Set([orgs.bakery.id]))
      expect(data).toHaveLength(12)
      expect((await none.call(api.auditLogs.list, { query: filter })).data).toEqual([])
    })
  })
})
