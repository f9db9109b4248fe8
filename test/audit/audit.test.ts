import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { findHead } from '../../src/audit/store.ts'
import type { Verdict } from '../../src/audit/verifier/verdict.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import type { Client } from '../../src/core/client.ts'
import { systemScope } from '../../src/core/scope.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { happening, recorded } from './rows.ts'

async function verify(client: Client, query: { orgId?: string } = {}): Promise<Verdict> {
  const verifier = new ChainVerifier()
  for await (const chunk of client.stream(api.auditLogs.chain, { query })) {
    const verdict = verifier.push(chunk)
    if (verdict) return verdict
  }
  return verifier.end()
}

onEveryDatabase((kind, open) => {
  const begin = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    return { service, ...world, client: service.client(world.tokens.bakery) }
  }

  describe('the audit log', () => {
    it('shows a change with its actor and origin', async () => {
      const { client, orgs } = await begin()
      await client.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      const { data } = await client.call(api.auditLogs.list, { query: { limit: 1 } })
      expect(data[0]).toMatchObject({
        action: 'site.create',
        user: { name: 'bakery-admin', email: 'bakery-admin@example.com', role: 'user' },
        resource: { type: 'site', name: 'Annex' },
        result: 'success',
        category: 'system',
        ipAddress: '127.0.0.1',
        orgId: orgs.bakery.id,
        details: { after: { name: 'Annex' } },
      })
    })

    it('truncates each field to its limit, and keeps the original of an invalid ID', async () => {
      const { service, client, orgs } = await begin()
      const raw = { ...happening(orgs.bakery.id), actorId: 'robot-7', resourceId: 'row 12' }
      const long = {
        actorEmail: 'e'.repeat(300),
        action: 'a'.repeat(120),
        resourceType: 't'.repeat(60),
        resourceName: 'n'.repeat(300),
        ipAddress: '1'.repeat(60),
        userAgent: 'u'.repeat(600),
      }
      const refusal = { result: 'denied', errorMessage: 'You may not do this.' } as const
      const at = '2031-01-01T00:00:00.000Z'
      await recorded(service, [[{ ...raw, ...long, ...refusal, details: { mine: 1, odd: Number.NaN } }, at]])
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'a'.repeat(100) } })
      const nobody = '00000000-0000-0000-0000-000000000000'
      expect(data).toMatchObject([
        {
          id: expect.stringMatching(/^[0-9a-f-]{36}$/),
          orgId: orgs.bakery.id,
          timestamp: at,
          user: { id: nobody, email: 'e'.repeat(255), role: 'system' },
          action: 'a'.repeat(100),
          resource: { type: 't'.repeat(50), id: nobody, name: 'n'.repeat(255) },
          details: { mine: 1, odd: null, rawActorId: 'robot-7', rawResourceId: 'row 12' },
          ipAddress: '1'.repeat(45),
          userAgent: 'u'.repeat(500),
          ...refusal,
          checksum: expect.stringMatching(/^[0-9a-f]{64}$/),
          prevChecksum: expect.stringMatching(/^[0-9a-f]{64}$/),
        },
      ])
      expect(await client.call(api.auditLogs.show, { params: { id: data[0]!.id } })).toEqual(data[0])
    })

    it('can be filtered by user, action, resource and time, ignoring letter case', async () => {
      const { client, orgs } = await begin()
      await client.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Größe' } })
      const count = async (query: Record<string, string>) =>
        (await client.call(api.auditLogs.list, { query })).pagination.total
      expect(await count({})).toBe(9)
      expect(await count({ action: 'ENROLL' })).toBe(2)
      expect(await count({ user: 'Bakery-Admin', excludeActions: 'data.access, x' })).toBe(1)
      expect(await count({ resource: 'GRÖSSE' })).toBe(0)
      expect(await count({ resource: 'GRÖß' })).toBe(1)
      expect(await count({ resource: '%' })).toBe(0)
      expect(await count({ from: '2999-01-01T00:00:00Z' })).toBe(0)
      const found = await client.call(api.auditLogs.search, { query: { q: 'größe' } })
      expect(found).toMatchObject({ query: 'größe', pagination: { total: 1, totalPages: 1 } })
      const uncounted = await client.call(api.auditLogs.list, { query: { skipCount: 'true', limit: 2 } })
      expect(uncounted).toMatchObject({ pagination: { total: -1, totalPages: -1 } })
      expect(uncounted.data).toHaveLength(2)
    })

    it('can also be read in the flat format, and entry by entry', async () => {
      const { client } = await begin()
      const { entries } = await client.call(api.auditLogs.flat)
      expect(entries[0]).toMatchObject({
        action: 'alert.create',
        resource: 'bakery alert',
        user: { department: '' },
      })
      const { data } = await client.call(api.auditLogs.list)
      expect(await client.call(api.auditLogs.show, { params: { id: data[0]!.id } })).toEqual(data[0])
    })

    it('has an intact chain for each organization and one for the system', async () => {
      const { service, tokens, orgs } = await begin()
      const system = service.client(tokens.system)
      const { data } = await system.call(api.auditLogs.heads)
      expect(data.map((head) => head.name)).toEqual(['System', 'bakery', 'garage', 'harbor'])
      expect(await verify(system)).toMatchObject({ verdict: 'sound', orgId: null, entries: data[0]!.seq })
      for (const { id } of Object.values(orgs)) {
        expect(await verify(system, { orgId: id })).toMatchObject({ verdict: 'sound', orgId: id, entries: 8 })
      }
      expect(await verify(service.client(tokens.bakeryAuditor))).toMatchObject({
        verdict: 'sound',
        orgId: orgs.bakery.id,
      })
    })

    it('reveals a changed row, both in the columns of filters and in the text of readers', async () => {
      const { service, client, orgs } = await begin()
      expect(await verify(client)).toMatchObject({ verdict: 'sound' })
      const undo = await tamper(service.storage, kind, { action: 'site.remove' }, orgs.bakery.id, 2)
      expect(await verify(client)).toMatchObject({ verdict: 'tampered', fault: { kind: 'altered', seq: 2 } })
      await undo()
      expect(await verify(client)).toMatchObject({ verdict: 'sound' })
      const rows = service.storage.read.selectFrom('audit_logs').selectAll()
      const row = await rows
        .where('chain', '=', orgs.bakery.id)
        .where('seq', '=', 3)
        .executeTakeFirstOrThrow()
      const canonical = row.canonical.replace('enrollment_key.create', 'enrollment_key.forget')
      await tamper(service.storage, kind, { canonical }, orgs.bakery.id, 3)
      expect(await verify(client)).toMatchObject({ verdict: 'tampered', fault: { kind: 'altered', seq: 3 } })
    })

    it('does not block work when the end of a chain is altered, and recovers with it', async () => {
      const { service, client, orgs, tokens } = await begin()
      const { storage } = service
      await sealPending(storage)
      const head = await findHead(storage.read, systemScope, orgs.bakery.id)
      const undo = await tamper(storage, kind, { checksum: 'f'.repeat(64) }, orgs.bakery.id, head!.seq)
      await client.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      expect(await sealPending(storage)).toMatchObject([
        { message: expect.stringContaining('does not follow the one before it') },
      ])
      // Other chains continue, and sealed entries can be read.
      const harbor = service.client(tokens.harbor)
      await harbor.call(api.sites.create, { body: { orgId: orgs.harbor.id, name: 'Quay' } })
      const newest = await harbor.call(api.auditLogs.list, { query: { limit: 1 } })
      expect(newest.data[0]).toMatchObject({ resource: { name: 'Quay' } })
      expect((await client.call(api.auditLogs.list)).data).not.toEqual([])
      expect(await findHead(storage.read, systemScope, orgs.bakery.id)).toEqual(head)
      await undo()
      await sealPending(storage)
      expect(await verify(client)).toMatchObject({ verdict: 'sound' })
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'site.create' } })
      expect(data[0]).toMatchObject({ resource: { name: 'Annex' } })
    })

    // The batch is refused in the first transaction, and in a later one each entry alone or its placeholder.
    it.each([2, 3, 4])('writes an entry whose chain is mended before transaction %i', async (nth) => {
      const { service, client, orgs, tokens } = await begin()
      const { storage } = service
      await sealPending(storage)
      const head = await findHead(storage.read, systemScope, orgs.bakery.id)
      const undo = await tamper(storage, kind, { checksum: 'f'.repeat(64) }, orgs.bakery.id, head!.seq)
      await client.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      let writes = 0
      const mending = Object.create(storage, {
        write: {
          value: async (...write: Parameters<Storage['write']>) => {
            writes += 1
            if (writes === nth) await undo()
            return storage.write(...write)
          },
        },
      }) as Storage
      await sealPending(mending)
      expect(writes).toBeGreaterThanOrEqual(2)
      if (writes < nth) await undo()
      expect(await sealPending(storage)).toEqual([])
      expect((await service.client(tokens.system).call(api.deadLetters.list)).data).toEqual([])
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'site.create' } })
      expect(data[0]).toMatchObject({ resource: { name: 'Annex' } })
      expect(await verify(client)).toMatchObject({ verdict: 'sound' })
    })
  })
})

type Storage = Awaited<ReturnType<typeof startService>>['storage']

/** Changes a row like an attacker with access to the database, who disables the triggers. */
async function tamper(
  storage: Storage,
  kind: 'sqlite' | 'postgres',
  change: Record<string, string>,
  chain: string,
  seq: number,
): Promise<() => Promise<unknown>> {
  const { sql } = await import('kysely')
  const of = (columns: Record<string, string>) =>
    storage.write(async (tx) => {
      const off =
        kind === 'sqlite'
          ? 'drop trigger if exists audit_logs_no_update'
          : 'alter table audit_logs disable trigger audit_logs_no_change'
      await sql.raw(off).execute(tx)
      await tx
        .updateTable('audit_logs')
        .set(columns)
        .where('chain', '=', chain)
        .where('seq', '=', seq)
        .execute()
    })
  const fields = Object.keys(change) as 'action'[]
  const row = storage.read
    .selectFrom('audit_logs')
    .select(fields)
    .where('chain', '=', chain)
    .where('seq', '=', seq)
  const before = await row.executeTakeFirstOrThrow()
  await of(change)
  return () => of(before)
}
