import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import type { Client } from '../../src/core/client.ts'
import { type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld, systemToken } from '../world.ts'

/** The queries of endpoints of the audit log that need more than the organization. */
const queries: Record<string, Record<string, unknown>> = {
  'auditLogs.search': { q: 'e' },
  'auditCheckpoints.proof': { since: 1 },
}
const bodies: Record<string, unknown> = {
  'auditRetention.change': { retentionDays: 400 },
  'auditRetention.hold': { held: true, reason: 'Case 1' },
  'auditExports.create': {},
}

const ofOneOrg = entriesOf(api).filter(
  ({ entry }) => entry.path.startsWith('/audit-logs') && Object.hasOwn(shapeOf(entry), 'orgId'),
)

function shapeOf(entry: Endpoint): object {
  return (entry.query as { shape?: object } | undefined)?.shape ?? {}
}

inTurn((open) => {
  describe('the audit log of a deleted organization', () => {
    const begin = async () => {
      const service = await startService(open)
      const world = await buildWorld(service)
      const { bakery } = world.orgs
      const client = (token: string) => service.client(token)
      await client(world.tokens.system).call(api.orgs.remove, { params: { id: bakery.id } })
      const readers: Record<string, Client> = {
        'the system administrator': client(await systemToken(service)),
        'an administrator of its partner': client(world.tokens.acme),
        'a user of its partner who had it selected': client(world.tokens.acmeBakery),
      }
      const others: [string, Client, number][] = [
        ['a user of its partner with nothing selected', client(world.tokens.acmeNone), 403],
        ['another partner', client(world.tokens.globex), 403],
        ['an administrator of another organization', client(world.tokens.garage), 403],
        ['its own administrator', client(world.tokens.bakery), 401],
      ]
      return { service, ...world, bakery, readers, others }
    }

    const call = (client: Client, name: string, entry: Endpoint, orgId: string): Promise<unknown> => {
      const input = {
        query: { ...queries[name], orgId },
        ...(bodies[name] !== undefined && { body: bodies[name] }),
      }
      return entry.streams ? drained(client, entry, input) : client.request(entry, input)
    }

    it('can be read, exported, verified and held by those who had access, and by nobody else', async () => {
      const { bakery, readers, others } = await begin()
      expect(ofOneOrg.length).toBeGreaterThan(14)
      const refused: unknown[] = []
      for (const { name, entry } of ofOneOrg) {
        for (const [who, client] of Object.entries(readers)) {
          await call(client, name, entry, bakery.id).catch((failure) =>
            refused.push([name, who, String(failure)]),
          )
        }
        for (const [who, client, status] of others) {
          const answer = await call(client, name, entry, bakery.id).then(
            () => 200,
            (failure: { status: number; code: string }) => failure.status,
          )
          if (answer !== status) refused.push([name, who, answer])
        }
      }
      expect(refused).toEqual([])
    })

    it('is listed with the time of the deletion, and is sound', async () => {
      const { bakery, garage, harbor, readers, others } = await begin().then(({ orgs, ...rest }) => ({
        ...orgs,
        ...rest,
      }))
      for (const client of Object.values(readers)) {
        const { data } = await client.call(api.auditLogs.heads)
        const head = data.find(({ orgId }) => orgId === bakery.id)
        expect(head).toMatchObject({
          name: 'bakery',
          slug: expect.any(String),
          deletedAt: expect.any(String),
        })
        expect(data.filter(({ deletedAt }) => deletedAt !== null)).toEqual([head])
        const verifier = new ChainVerifier()
        for await (const piece of client.stream(api.auditLogs.chain, { query: { orgId: bakery.id } })) {
          verifier.push(piece)
        }
        expect(verifier.end()).toMatchObject({ verdict: 'sound', orgId: bakery.id })
        const { data: entries } = await client.call(api.auditLogs.list, {
          query: { orgId: bakery.id, limit: 100 },
        })
        expect(entries.map(({ action }) => action)).toContain('organization.delete')
        const [first] = entries
        expect(await client.call(api.auditLogs.show, { params: { id: first!.id } })).toMatchObject({
          id: first!.id,
        })
        expect(await client.call(api.auditCheckpoints.proof, { query: { id: first!.id } })).toBeTruthy()
        // It is also included in the list of all entries.
        const { data: all } = await client.call(api.auditLogs.search, { query: { q: 'organization.delete' } })
        expect(all.map(({ orgId }) => orgId)).toContain(bakery.id)
        for (const [, other] of others.slice(0, 3)) {
          await expect(other.call(api.auditLogs.show, { params: { id: first!.id } })).rejects.toMatchObject({
            status: 404,
          })
        }
      }
      const chainsOf = async (client: Client) =>
        (await client.call(api.auditLogs.heads)).data.map(({ orgId }) => orgId)
      expect(await chainsOf(readers['a user of its partner who had it selected']!)).toEqual([bakery.id])
      expect(await chainsOf(others[0]![1])).toEqual([])
      expect(await chainsOf(others[1]![1])).toEqual([harbor.id])
      expect(await chainsOf(others[2]![1])).toEqual([garage.id])
    })

    it('can be read only in system scope after its partner is deleted too', async () => {
      const { service, bakery, partners, readers, tokens } = await begin()
      const system = readers['the system administrator']!
      await system.call(api.partners.remove, { params: { id: partners.acme } })
      const query = { orgId: bakery.id }
      expect((await system.call(api.auditLogs.list, { query })).data.length).toBeGreaterThan(0)
      await expect(service.client(tokens.acme).call(api.auditLogs.list, { query })).rejects.toMatchObject({
        status: 401,
      })
    })
  })
})

async function drained(client: Client, entry: Endpoint, input: object): Promise<void> {
  for await (const _ of client.stream(entry, input));
}
