import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Site } from '../../src/tenancy/contract.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { addOrgUser, systemToken } from '../world.ts'
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
})
