import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import type { Site } from '../../src/tenancy/contract.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { addOrgUser, addRole, addUser, buildWorld, roleOf, systemToken, tokenFor } from '../world.ts'
import { send } from './request.ts'

async function makeOrg(service: TestService, token: string): Promise<string> {
  const client = service.client(token)
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  return (await client.call(api.orgs.create, { body: { partnerId, name: 'Bakery', slug: 'bakery' } })).id
}

onEveryDatabase((_, open) => {
  it('an Idempotency-Key gives its user the first reply for 24 hours, and belongs to one request', async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const token = await systemToken(service)
    const orgId = await makeOrg(service, token)
    const create = (body: object, key: string, path = '/orgs/sites', who = token) =>
      send<Site & { code: string }>(service.url, 'POST', `/api/v1${path}`, {
        token: who,
        body,
        headers: { 'idempotency-key': key },
      })
    const names = async () => {
      const { data } = await service.client(token).call(api.sites.list, { query: { orgId } })
      return data.map(({ name }) => name)
    }

    const first = await create({ orgId, name: 'one' }, 'k1')
    const again = await create({ name: 'one', orgId }, 'k1')
    expect({ status: again.status, body: again.body }).toEqual({ status: 201, body: first.body })
    expect(await create({ orgId, name: 'other' }, 'k1')).toMatchObject({
      status: 409,
      body: { code: 'idempotency_mismatch' },
    })
    const elsewhere = await create({ orgId, name: 'one' }, 'k1', '/enrollment-keys')
    expect(elsewhere).toMatchObject({ status: 409, body: { code: 'idempotency_mismatch' } })

    const colleague = await addOrgUser(service, 'colleague', orgId)
    const theirs = await create({ orgId, name: 'theirs' }, 'k1', '/orgs/sites', colleague)
    expect(theirs.status).toBe(201)
    expect(theirs.body.id).not.toBe(first.body.id)

    expect((await create({ orgId, name: '' }, 'k2')).status, 'a failure does not use the key up').toBe(400)
    expect((await create({ orgId: first.body.id, name: 'two' }, 'k2')).status).toBe(404)
    expect((await create({ orgId, name: 'two' }, 'k2')).status).toBe(201)

    expect((await create({ orgId, name: 'x' }, '')).status, 'an empty key').toBe(400)
    expect((await create({ orgId, name: 'x' }, 'k'.repeat(256))).status, 'a long key').toBe(400)
    expect(await names()).toEqual(['one', 'theirs', 'two'])

    clock.forward(24 * 3600 - 1)
    const lateToken = await systemToken(service)
    expect((await create({ orgId, name: 'one' }, 'k1', '/orgs/sites', lateToken)).body.id).toBe(first.body.id)
    clock.forward(2)
    const after = await create({ orgId, name: 'next day' }, 'k1', '/orgs/sites', lateToken)
    expect(after.status).toBe(201)
    expect(after.body.id).not.toBe(first.body.id)
  })

  it('a minted key is repeated with its Idempotency-Key, and not readable in the database meanwhile', async () => {
    const service = await startService(open)
    const token = await systemToken(service)
    const body = { orgId: await makeOrg(service, token), name: 'reception' }
    const mint = () =>
      send<{ key: string }>(service.url, 'POST', '/api/v1/enrollment-keys', {
        token,
        body,
        headers: { 'idempotency-key': 'k' },
      })
    const [a, b] = await Promise.all([mint(), mint()])
    expect(a.body.key).toMatch(/^[0-9a-f]{64}$/)
    expect(b.body).toEqual(a.body)
    const rows = await service.storage.read.selectFrom('idempotency_keys').selectAll().execute()
    expect(rows.map(({ reply }) => reply.slice(0, 3))).toEqual(expect.arrayContaining(['v1.']))
    expect(JSON.stringify(rows)).not.toContain(a.body.key)
  })

  it('a key is one of its tenant, and gives nothing that is out of reach by now', async () => {
    const service = await startService(open)
    const { orgs, partners, tokens } = await buildWorld(service)
    const userId = await addUser(service, 'both')
    const now = new Date().toISOString()
    const roleId = await addRole(service, { partnerId: partners.acme }, 'hooks', [
      'organizations:read',
      'organizations:write',
    ])
    await service.storage.write(async (tx) => {
      await joinPartner(
        tx,
        { partnerId: partners.acme, userId, roleId, orgs: [orgs.bakery.id, orgs.garage.id] },
        now,
      )
      for (const orgId of [orgs.bakery.id, orgs.harbor.id])
        await joinOrganization(
          tx,
          { orgId, userId, roleId: roleOf('Org Admin', 'organization'), siteIds: null, groupIds: null },
          now,
        )
    })
    const mint = (token: string, path: string, body: object) =>
      send<{ key: string }>(service.url, 'POST', `/api/v1${path}`, {
        token,
        body,
        headers: { 'idempotency-key': 'k' },
      })
    const inOrg = (orgId: string) => tokenFor(service, userId, { kind: 'organization', orgId })

    const body = { name: 'reception' }
    const [bakery, harbor] = [await inOrg(orgs.bakery.id), await inOrg(orgs.harbor.id)]
    const first = await mint(bakery, '/enrollment-keys', body)
    expect(first).toMatchObject({ status: 201 })
    const other = await mint(harbor, '/enrollment-keys', body)
    expect([other.status, other.body.key === first.body.key]).toEqual([201, false])
    expect((await mint(bakery, '/enrollment-keys', body)).body).toEqual(first.body)

    const system = service.client(tokens.system)
    const narrowTo = (siteIds: string[] | null) =>
      system.call(api.users.changeAccess, {
        params: { id: userId },
        query: { orgId: orgs.bakery.id },
        body: { siteIds },
      })
    await narrowTo([orgs.bakery.siteId])
    expect((await mint(bakery, '/enrollment-keys', body)).status).toBe(404)
    await narrowTo(null)
    expect((await mint(bakery, '/enrollment-keys', body)).body).toEqual(first.body)

    const viewer = { role_id: roleOf('Org Viewer', 'organization') }
    await service.storage.write((tx) =>
      tx.updateTable('organization_memberships').set(viewer).where('user_id', '=', userId).execute(),
    )
    expect((await mint(bakery, '/enrollment-keys', body)).status).toBe(403)
  })

  it('an event and a test of a webhook that are sent again happen once, for one webhook', async () => {
    const service = await startService(open)
    const { orgs, tokens } = await buildWorld(service)
    const ask = (path: string, body?: object) =>
      send(service.url, 'POST', `/api/v1${path}`, {
        token: tokens.system,
        ...(body && { body }),
        headers: { 'idempotency-key': 'k' },
      })
    const event = { orgId: orgs.bakery.id, type: 'patch.failed', data: { patchId: 'a' } }
    const first = await ask('/events', event)
    expect(first.status).toBe(202)
    expect((await ask('/events', event)).body).toEqual(first.body)
    const test = (id: string) =>
      send<{ deliveryId: string }>(service.url, 'POST', `/api/v1/webhooks/${id}/test`, {
        token: tokens.system,
        headers: { 'idempotency-key': 'test' },
      })
    const tested = await test(orgs.bakery.webhookId)
    expect(tested.status).toBe(202)
    expect((await test(orgs.bakery.webhookId)).body).toEqual(tested.body)
    expect((await test(orgs.garage.webhookId)).status, 'the address is part of what is asked').toBe(409)
  })
})
