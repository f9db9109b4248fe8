import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { AuditEntry } from '../../src/audit/contract.ts'
import { listEntriesByIds } from '../../src/audit/entries.ts'
import type { Client } from '../../src/core/client.ts'
import { organizationScope } from '../../src/core/scope.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { happening, piled, recorded } from './rows.ts'

type Query = Record<string, string | number>

const byNumber = async (client: Client, query: Query): Promise<AuditEntry[]> => {
  const all: AuditEntry[] = []
  for (let page = 1; ; page += 1) {
    const { data } = await client.call(api.auditLogs.list, { query: { ...query, page } as never })
    if (data.length === 0) return all
    all.push(...data)
  }
}

const byCursor = async (client: Client, query: Query): Promise<AuditEntry[]> => {
  const all: AuditEntry[] = []
  for (let cursor: string | undefined; ; ) {
    const { data, pagination } = await client.call(api.auditLogs.list, {
      query: { ...query, ...(cursor !== undefined && { cursor }) } as never,
    })
    all.push(...data)
    if (pagination.nextCursor === null) return all
    cursor = pagination.nextCursor
  }
}

inTurn((open) => {
  const begin = async (options: { clock?: ReturnType<typeof testClock> } = {}) => {
    const service = await startService(open, options)
    const world = await buildWorld(service)
    return { service, ...world, client: service.client(world.tokens.bakery) }
  }

  describe('entries of other tenants', () => {
    it('are not in the total of a list', async () => {
      const { service, tokens } = await begin()
      const acme = service.client(tokens.acme)
      const all = await byNumber(acme, { limit: 100 })
      const { pagination } = await acme.call(api.auditLogs.list, { query: { limit: 1 } })
      expect(pagination.total).toBeGreaterThanOrEqual(all.length)
      expect(pagination.total).toBeLessThanOrEqual(all.length + 1)
    })

    it('are not found by their IDs', async () => {
      const { service, tokens, orgs } = await begin()
      const harbor = await byNumber(service.client(tokens.harbor), { limit: 100 })
      const ids = harbor.map(({ id }) => id)
      expect(ids).not.toEqual([])
      const { read } = service.storage
      expect(await listEntriesByIds(read, organizationScope(orgs.harbor.id), ids)).toHaveLength(ids.length)
      expect(await listEntriesByIds(read, organizationScope(orgs.bakery.id), ids)).toEqual([])
    })
  })

  describe('a list of audit entries', () => {
    it('is the same by cursor as by page, complete, filtered or of several chains', async () => {
      const { service, tokens, orgs, client } = await begin()
      const system = service.client(tokens.system)
      const acme = service.client(tokens.acme)
      const lists: [Client, Query][] = [
        [client, { limit: 3 }],
        [client, { limit: 2, action: 'create' }],
        [system, { limit: 4, orgId: orgs.garage.id }],
        [system, { limit: 7 }],
        [acme, { limit: 5, excludeActions: 'data.access' }],
        [acme, { limit: 6 }],
      ]
      for (const [who, query] of lists) {
        // The first request adds an entry of its own.
        await who.call(api.auditLogs.list, { query: query as never })
        const pages = await byNumber(who, query)
        expect(pages.length).toBeGreaterThan(5)
        expect(await byCursor(who, query)).toEqual(pages)
        const { pagination } = await who.call(api.auditLogs.list, { query: query as never })
        expect(pagination.total).toBe(pages.length)
        expect(pagination.totalPages).toBe(Math.ceil(pages.length / Number(query.limit)))
      }
    })

    it('continues by cursor despite new entries, and counts only on its first page', async () => {
      const { service, orgs, client } = await begin()
      const query = { limit: 3 }
      const first = await client.call(api.auditLogs.list, { query })
      const { data: second } = await client.call(api.auditLogs.list, { query: { ...query, page: 2 } })
      await recorded(service, [[happening(orgs.bakery.id), '2030-01-01T00:00:00.000Z']])
      const cursor = first.pagination.nextCursor!
      const next = await client.call(api.auditLogs.list, { query: { ...query, cursor } })
      expect(next.data.map(({ id }) => id).slice(0, 2)).toEqual(
        second
          .map(({ id }) => id)
          .filter((id) => !first.data.some((one) => one.id === id))
          .slice(0, 2),
      )
      expect(next.pagination).toMatchObject({ limit: 3, total: -1, totalPages: -1 })
      expect(next.pagination.page).toBeUndefined()
    })

    it('refuses a cursor of another list', async () => {
      const { client } = await begin()
      const { pagination } = await client.call(api.auditLogs.list, { query: { limit: 1 } })
      const text = Buffer.from('["x"]').toString('base64url')
      for (const query of [{ action: 'a', cursor: pagination.nextCursor! }, { cursor: text }]) {
        await expect(client.call(api.auditLogs.list, { query })).rejects.toMatchObject({
          status: 400,
          details: [{ path: 'query.cursor' }],
        })
      }
    })

    it('has before, after and session in the flat format', async () => {
      const { service, orgs, client } = await begin()
      const details = { before: { name: 'a' }, after: { name: 'b' }, sessionId: 's1' }
      const about = { resourceType: 'site', resourceName: 'Annex', details }
      await recorded(service, [[happening(orgs.bakery.id, about), '2030-01-01T00:00:00.000Z']])
      const { entries } = await client.call(api.auditLogs.flat, { query: { action: 'thing.' } })
      expect(entries).toMatchObject([
        {
          resource: 'Annex',
          resourceType: 'site',
          sessionId: 's1',
          changes: { before: { name: 'a' }, after: { name: 'b' } },
          user: { name: 'System', role: 'system', department: '' },
        },
      ])
      expect(JSON.parse(entries[0]!.details)).toEqual(details)
    })

    it('is searched by action, address, resource and details, and nothing else', async () => {
      const { service, orgs, client } = await begin()
      const event = { details: { note: 'say "cheese" \\ now' }, userAgent: 'hidden-agent' }
      await recorded(service, [[happening(orgs.bakery.id, event), '2030-01-01T00:00:00.000Z']])
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'thing.happen' } })
      const total = async (q: string) =>
        (await client.call(api.auditLogs.search, { query: { q, excludeActions: 'data.access' } })).pagination
          .total
      expect(await total('"cheese" \\')).toBe(1)
      expect(await total('THING.HAPPEN')).toBe(1)
      expect(await total('bakery alert')).toBe(1)
      expect(await total('hidden-agent')).toBe(0)
      expect(await total(data[0]!.checksum)).toBe(0)
      expect(await total('%')).toBe(0)
    })

    it('of a partner contains what its users may see, and nothing of others', async () => {
      const { service, tokens, orgs } = await begin()
      const seen = async (token: string) =>
        new Set((await byCursor(service.client(token), { limit: 100 })).map(({ orgId }) => orgId))
      expect(await seen(tokens.acme)).toEqual(new Set([orgs.bakery.id, orgs.garage.id]))
      expect(await seen(tokens.acmeBakery)).toEqual(new Set([orgs.bakery.id]))
      expect(await seen(tokens.acmeNone)).toEqual(new Set())
      expect(await seen(tokens.harbor)).toEqual(new Set([orgs.harbor.id]))
      const query = { orgId: orgs.harbor.id }
      for (const entry of [api.auditLogs.list, api.auditReports.stats, api.auditExports.download]) {
        await expect(service.client(tokens.acme).request(entry, { query })).rejects.toMatchObject({
          status: 403,
          code: 'org_access_denied',
        })
      }
    })

    it('has the total of a long chain without counting, and reaches its last page directly', async () => {
      const { service, orgs, client } = await begin()
      await piled(service, orgs.bakery.id, 2000)
      const query = { limit: 100, page: 21 }
      const { data, pagination } = await client.call(api.auditLogs.list, { query })
      expect(pagination).toMatchObject({ total: 2008, totalPages: 21, nextCursor: null })
      expect(data.map(({ seq }) => seq)).toEqual([8, 7, 6, 5, 4, 3, 2, 1])
    })
  })

  describe('reading the audit log', () => {
    const readEntries = async (client: Client, action = 'data.access') =>
      (await client.call(api.auditLogs.list, { query: { action, excludeActions: 'x' } })).data

    it('adds one entry per reader and query, until some minutes have passed', async () => {
      const clock = testClock(new Date().toISOString())
      const { client, service, tokens } = await begin({ clock })
      const before = (await readEntries(client)).length
      for (const page of [1, 2, 3]) await client.call(api.auditLogs.list, { query: { page, limit: 2 } })
      expect(await readEntries(client)).toHaveLength(before + 2)
      await client.call(api.auditLogs.list, { query: { user: 'someone' } })
      await service.client(tokens.bakeryAuditor).call(api.auditLogs.list)
      expect(await readEntries(client)).toHaveLength(before + 4)
      clock.forward(11 * 60)
      const again = service.client(tokens.bakeryAuditor)
      await again.call(api.auditLogs.list)
      const [last] = await readEntries(again)
      expect(last).toMatchObject({
        action: 'data.access',
        category: 'compliance',
        resource: { type: 'audit_log' },
        user: { name: 'bakery-auditor' },
        details: { path: '/audit-logs/logs' },
        result: 'success',
      })
    })

    it('is logged in the organization that was read', async () => {
      const { service, tokens, orgs, client } = await begin()
      const system = service.client(tokens.system)
      await system.call(api.auditLogs.list, { query: { orgId: orgs.bakery.id, user: 'who' } })
      await system.call(api.auditReports.security, { query: { orgId: orgs.bakery.id } })
      expect((await readEntries(client)).map(({ details }) => details)).toMatchObject([
        { path: '/audit-logs/reports/security-events' },
        { path: '/audit-logs/logs', query: { orgId: orgs.bakery.id, user: 'who' } },
      ])
    })

    it('by an export is logged each time', async () => {
      const { client } = await begin()
      await client.call(api.auditExports.create, { body: { filters: { action: 'site' } } })
      for (const _ of [1, 2]) {
        const stream = client.stream(api.auditExports.download, { query: { format: 'ndjson' } })
        for await (const chunk of stream) expect(chunk.length).toBeGreaterThan(0)
      }
      const exportEntries = await readEntries(client, 'data.export')
      expect(exportEntries.map(({ details }) => details)).toMatchObject([
        { format: 'ndjson' },
        { format: 'ndjson' },
        { format: 'json', filters: { action: 'site' }, entries: 1 },
      ])
    })
  })
})
