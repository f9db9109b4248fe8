import { expect, it } from 'vitest'
import { readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import { api } from '../../src/api.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import type { Site } from '../../src/tenancy/contract.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, startService, type TestService, testClock } from '../harness.ts'
import { scenarioOf, scenarioTools } from '../laws/scenarios.ts'
import { json, startVerifyService } from '../messages/verify-service.ts'
import { addOrgUser, addRole, addUser, buildWorld, roleOf, systemToken, tokenFor } from '../world.ts'
import { send } from './request.ts'

async function makeOrg(service: TestService, token: string): Promise<string> {
  const client = service.client(token)
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  return (await client.call(api.orgs.create, { body: { partnerId, name: 'Bakery', slug: 'bakery' } })).id
}

inTurn((open) => {
  it('an Idempotency-Key repeats the first reply to its user for 24 hours, for one request', async () => {
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

  it('a repeated request returns the same minted key, which is stored encrypted', async () => {
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

  it('an Idempotency-Key belongs to one tenant, and a repeat checks access again', async () => {
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

  it('a repeated event or webhook test happens once, and the webhook is part of the request', async () => {
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

  it('an anonymous Idempotency-Key belongs to one address and one request', async () => {
    const service = await startService(open, { env: { TRUST_PROXY_HEADERS: 'true' } })
    const ask = (email: string, ip: string) =>
      send<{ code: string }>(service.url, 'POST', '/api/v1/auth/forgot-password', {
        body: { email },
        headers: { 'idempotency-key': 'k', 'x-forwarded-for': ip },
      })
    const mailsToAdmin = async () =>
      (await readOutboxMessages(service.dataDir)).filter(({ to }) => to === adminEmail).length
    const first = await ask(adminEmail, '203.0.113.1')
    expect(first.status).toBe(200)
    expect((await ask(adminEmail, '203.0.113.1')).body).toEqual(first.body)
    await expect.poll(mailsToAdmin, { timeout: 10_000 }).toBe(1)
    expect(await ask('nobody@example.com', '203.0.113.1')).toMatchObject({
      status: 409,
      body: { code: 'idempotency_mismatch' },
    })
    expect((await ask(adminEmail, '203.0.113.2')).status).toBe(200)
    await expect.poll(mailsToAdmin, { timeout: 10_000 }).toBe(2)
  })

  it('a refused anonymous request stores no reply, so the rate limit bounds what is stored', async () => {
    const service = await startService(open, { env: { RATE_LIMIT_FORGOT: '3/3600' } })
    const ask = (path: string, body: object, key: string) =>
      send(service.url, 'POST', `/api/v1${path}`, { body, headers: { 'idempotency-key': key } })
    const statuses: number[] = []
    for (let n = 0; n < 6; n++)
      statuses.push((await ask('/auth/forgot-password', { email: `a${n}@example.com` }, `k${n}`)).status)
    expect(statuses).toEqual([200, 200, 200, 429, 429, 429])
    for (let n = 0; n < 6; n++)
      expect((await ask('/auth/mfa/sms/send', { tempToken: `t${n}` }, `s${n}`)).status).toBe(401)
    const rows = await service.storage.read.selectFrom('idempotency_keys').select('key').execute()
    expect(rows.map(({ key }) => key).sort()).toEqual(['k0', 'k1', 'k2'])
  })

  it('an Idempotency-Key is held while a message is sent, until it fails or 2 minutes pass', async () => {
    const clock = testClock()
    const sms = await startVerifyService()
    const service = await startService(open, {
      clock,
      env: { ...sms.env, OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' },
    })
    const tools = scenarioTools(service, await buildWorld(service), clock)
    const { input, token } = await scenarioOf('auth.verifyPhone', api.auth.verifyPhone, tools)
    const ask = (key: string) =>
      send<{ code?: string; success?: boolean }>(service.url, 'POST', '/api/v1/auth/phone/verify', {
        token,
        body: input.body,
        headers: { 'idempotency-key': key },
      })
    const inProgress = {
      status: 409,
      headers: { 'retry-after': '1' },
      body: { code: 'idempotency_in_progress' },
    }

    const { resolve: release, promise: held } = Promise.withResolvers<void>()
    const usual = json(201, { status: 'pending' })
    sms.answer = (reply) => void held.then(() => usual(reply))
    const first = ask('slow')
    await expect.poll(() => sms.asked.length, { timeout: 10_000 }).toBe(1)
    expect(await ask('slow')).toMatchObject(inProgress)
    release()
    expect(await first).toMatchObject({ status: 200, body: { success: true } })
    expect((await ask('slow')).body).toEqual((await first).body)
    expect(sms.asked).toHaveLength(1)

    sms.answer = json(500, {})
    expect((await ask('failing')).status).toBeGreaterThanOrEqual(500)
    sms.answer = usual
    expect((await ask('failing')).status).toBe(200)

    // Of a process that ended before it stored a reply.
    const owner = await service.storage.read
      .selectFrom('idempotency_keys')
      .select('owner')
      .where('key', '=', 'slow')
      .executeTakeFirstOrThrow()
    const abandoned = { ...owner, key: 'left', request_hash: 'x', reply: '', status: 0, created_at: clock() }
    await service.storage.write((tx) => tx.insertInto('idempotency_keys').values(abandoned).execute())
    clock.forward(119)
    expect(await ask('left')).toMatchObject(inProgress)
    clock.forward(2)
    expect((await ask('left')).status).toBe(200)
  })
})
