import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { eventTypes } from '../../src/core/event-types.ts'
import { newId } from '../../src/core/new-id.ts'
import { joinOrganization } from '../../src/identity/memberships.ts'
import { hiddenValue, type WebhookChange } from '../../src/webhooks/contract.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock, testSecrets } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addRole, addUser, buildWorld, tokenFor } from '../world.ts'

const url = 'https://hooks.example.com/in'
const secret = 'a secret of ours'
const errorWith = (status: number, message: string) => expect.objectContaining({ status, message })
const faults = (...details: { path: string; message: string }[]) =>
  expect.objectContaining({ status: 400, details })

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const { bakery, garage } = world.orgs
    const client = service.client(world.tokens.bakery)
    const create = (more: Record<string, unknown> = {}) =>
      client.call(api.webhooks.create, { body: { name: 'hook', url, events: ['device.enrolled'], ...more } })
    return {
      clock,
      service,
      world,
      bakery,
      garage,
      client,
      create,
      system: service.client(world.tokens.system),
    }
  }

  describe('a webhook', () => {
    it('is created active, with every field, and never shows what may be a credential', async () => {
      const { service, bakery, client, create, clock } = await start()
      const headers = [{ key: 'Authorization', value: 'Bearer tokenofours' }]
      const events = ['alert.triggered', 'device.enrolled']
      const made = await create({ url: `${url}?token=keyofours#x`, secret, headers, events })
      expect(made).toEqual({
        id: expect.any(String),
        orgId: bakery.id,
        name: 'hook',
        url: `${url}?${hiddenValue}#x`,
        hasSecret: true,
        unreadable: [],
        events,
        headers: [{ key: 'Authorization', value: hiddenValue }],
        status: 'active',
        statusReason: null,
        retryPolicy: null,
        successCount: 0,
        failureCount: 0,
        lastDeliveryAt: null,
        lastSuccessAt: null,
        createdBy: expect.any(String),
        createdAt: clock(),
        updatedAt: clock(),
      })
      const shown = await client.call(api.webhooks.show, { params: { id: made.id } })
      const none = { total: 0, pending: 0, delivered: 0, failed: 0, retrying: 0, lastDeliveredAt: null }
      expect(shown).toEqual({ ...made, deliveryStats: none })
      const row = await service.storage.read
        .selectFrom('webhooks')
        .selectAll()
        .where('id', '=', made.id)
        .executeTakeFirstOrThrow()
      for (const open of ['ofours', secret, 'hooks.example.com', 'Bearer']) {
        expect(JSON.stringify([row.url, row.secret, row.headers])).not.toContain(open)
      }
      const entries = await service.storage.read.selectFrom('audit_logs').select('canonical').execute()
      expect(entries.filter(({ canonical }) => /ofours|a secret of ours/.test(canonical))).toEqual([])
    })

    it("belongs to the caller's organization, or for wider callers to the named one", async () => {
      const { bakery, garage, client, system, service, world } = await start()
      const body = { name: 'a', url, events: ['*' as const] }
      expect(await client.call(api.webhooks.create, { body })).toMatchObject({ orgId: bakery.id })
      await expect(system.call(api.webhooks.create, { body })).rejects.toEqual(
        errorWith(400, 'orgId is required for system scope'),
      )
      const acme = service.client(world.tokens.acme)
      await expect(acme.call(api.webhooks.create, { body })).rejects.toEqual(
        errorWith(400, 'orgId is required for partner scope'),
      )
      const inGarage = await acme.call(api.webhooks.create, { body: { ...body, orgId: garage.id } })
      expect(inGarage.orgId).toBe(garage.id)
      await expect(client.call(api.webhooks.show, { params: { id: inGarage.id } })).rejects.toEqual(
        errorWith(404, 'Webhook not found'),
      )
    })

    it('requires organizations:read to view and organizations:write to change, and no MFA', async () => {
      const { service, bakery, create } = await start()
      const { id } = await create()
      const as = async (permission: string) => {
        const userId = await addUser(service, permission.replace(':', '-'))
        const roleId = await addRole(service, bakery.id, permission, [permission])
        const membership = { orgId: bakery.id, userId, roleId, siteIds: null, groupIds: null }
        await service.storage.write((tx) => joinOrganization(tx, membership, new Date().toISOString()))
        return service.client(
          await tokenFor(service, userId, { kind: 'organization', orgId: bakery.id }, { mfa: false }),
        )
      }
      const [reader, writer] = [await as('organizations:read'), await as('organizations:write')]
      const params = { id }
      const forbidden = expect.objectContaining({ status: 403 })
      expect(await reader.call(api.webhooks.list)).toMatchObject({ pagination: { total: 2 } })
      await expect(reader.call(api.webhooks.update, { params, body: { name: 'b' } })).rejects.toEqual(
        forbidden,
      )
      await expect(reader.call(api.webhookDeliveries.test, { params })).rejects.toEqual(forbidden)
      await expect(writer.call(api.webhooks.list)).rejects.toEqual(forbidden)
      expect(await writer.call(api.webhooks.update, { params, body: { name: 'b' } })).toMatchObject({
        name: 'b',
      })
      expect(await writer.call(api.webhooks.remove, { params })).toEqual({ success: true })
    })

    it('is listed newest first, by status and organization, in pages', async () => {
      const { bakery, client, create, clock, system, garage } = await start()
      for (const name of ['a', 'b', 'c']) {
        await create({ name })
        clock.forward(1)
      }
      const names = async (query = {}) => {
        const { data, pagination } = await client.call(api.webhooks.list, { query })
        return [...data.map(({ name }) => name), pagination.total]
      }
      const all = await client.call(api.webhooks.list)
      const { id } = all.data.find(({ name }) => name === 'b')!
      await client.call(api.webhooks.update, { params: { id }, body: { status: 'paused' } })
      expect((await names()).slice(-3)).toEqual(expect.arrayContaining([4]))
      expect(await names({ status: 'paused' })).toEqual(['b', 1])
      expect(await names({ page: 2, limit: 2, status: 'active' })).toHaveLength(2)
      const elsewhere = await system.call(api.webhooks.list, { query: { orgId: garage.id } })
      expect(elsewhere.data.map(({ orgId }) => orgId)).toEqual([garage.id])
      expect((await system.call(api.webhooks.list, { query: { orgId: bakery.id } })).pagination.total).toBe(4)
      const stranger = client.call(api.webhooks.list, { query: { orgId: garage.id } })
      await expect(stranger).rejects.toEqual(expect.objectContaining({ status: 403 }))
    })

    it('takes every existing event type, or *, each once, and no other', async () => {
      const { create, client } = await start()
      const all = await create({ events: [...eventTypes, 'device.online'] })
      expect([...all.events].sort()).toEqual([...eventTypes].sort())
      expect((await create({ events: ['*'] })).events).toEqual(['*'])
      await expect(create({ events: [] })).rejects.toEqual(
        faults({ path: 'body.events', message: 'must name at least one event type, or * for all' }),
      )
      await expect(create({ events: ['device.eaten'] })).rejects.toEqual(
        faults({
          path: 'body.events.0',
          message: expect.stringMatching(/^"device.eaten" is not an event type: /),
        }),
      )
      const params = { id: all.id }
      const after = await client.call(api.webhooks.update, { params, body: { events: ['user.login'] } })
      expect(after.events).toEqual(['user.login'])
    })

    it('keeps its headers where they are: a URL of another origin comes with its own', async () => {
      const { create, client } = await start()
      const headers = [{ key: 'Authorization', value: 'Bearer hush' }]
      const { id } = await create({ url: 'https://93.184.215.14/a', headers })
      const update = (body: WebhookChange) => client.call(api.webhooks.update, { params: { id }, body })
      const fault = faults({
        path: 'body.headers',
        message: 'must be sent with a URL of another scheme, host or port: their values are secret',
      })
      for (const elsewhere of ['https://93.184.215.15/a', 'https://93.184.215.14:8443/a'])
        await expect(update({ url: elsewhere })).rejects.toEqual(fault)
      expect(await update({ url: 'https://93.184.215.14/b' })).toMatchObject({
        headers: [{ value: hiddenValue }],
      })
      const moved = { url: 'https://93.184.215.15/a' }
      expect(await update({ ...moved, headers: [] })).toMatchObject({ ...moved, headers: [] })
      expect(await update({ url: 'https://93.184.215.16/a' })).toMatchObject({ headers: [] })
    })

    it.each([
      ['no url at all', 'Invalid URL format'],
      ['https://', 'Invalid URL format'],
      ['http://hooks.example.com', 'Webhook URL must use HTTPS'],
      ['ftp://hooks.example.com', 'Webhook URL must use HTTPS'],
      [
        'https://user:pass@hooks.example.com',
        'Webhook URL must not contain a user name or password: send them as a header',
      ],
      ['https://localhost', 'Webhook URL cannot target localhost or local network hostnames'],
      ['https://LOCALHOST.:8443/x', 'Webhook URL cannot target localhost or local network hostnames'],
      ['https://a.localhost', 'Webhook URL cannot target localhost or local network hostnames'],
      ['https://nas.local', 'Webhook URL cannot target localhost or local network hostnames'],
      ['https://10.1.2.3', 'Webhook URL cannot target private, loopback, or link-local addresses'],
      ['https://0x7f.1', 'Webhook URL cannot target private, loopback, or link-local addresses'],
      ['https://[::1]', 'Webhook URL cannot target private, loopback, or link-local addresses'],
      ['https://nobody.invalid', 'Webhook URL hostname could not be resolved'],
    ])('does not accept the URL %s', async (bad, message) => {
      const { create, client, service } = await start()
      const refused = expect.objectContaining({
        status: 400,
        message: 'Invalid webhook URL',
        details: [{ path: 'body.url', message }],
      })
      const news = await newEntries(service)
      await expect(create({ url: bad })).rejects.toEqual(refused)
      expect(await client.call(api.webhooks.list)).toMatchObject({ pagination: { total: 1 } })
      expect(await news()).toEqual([])
      const { id } = await create()
      await expect(client.call(api.webhooks.update, { params: { id }, body: { url: bad } })).rejects.toEqual(
        refused,
      )
    })

    it('rejects invalid headers, and names each', async () => {
      const { create } = await start()
      const keys = ['Host', 'content-length', 'X-Service-Anything', 'Webhook-Id', 'proxy-authorization', 'TE']
      const headers = keys.map((key) => ({ key, value: 'a' }))
      const wrong = [
        { key: 'a b', value: 'c' },
        { key: 'X-Twice', value: '1' },
        { key: 'x-twice', value: '2' },
        { key: 'X-Break', value: 'a\r\nHost: b' },
        { key: 'X-Wide', value: '€' },
      ]
      await expect(create({ headers: [...headers, ...wrong] })).rejects.toEqual(
        faults(
          ...keys.map((key, i) => ({
            path: `body.headers.${i}.key`,
            message: `Header "${key}" is reserved`,
          })),
          { path: 'body.headers.6.key', message: 'is not the name of a header' },
          { path: 'body.headers.8.key', message: 'Header "x-twice" occurs twice' },
          { path: 'body.headers.9.value', message: 'must contain only Latin-1 without control characters' },
          { path: 'body.headers.10.value', message: 'must contain only Latin-1 without control characters' },
        ),
      )
    })

    it('enforces its limits, and rejects fields that are read-only', async () => {
      const { create } = await start()
      expect((await create({ name: 'n'.repeat(255) })).name).toHaveLength(255)
      for (const body of [
        { name: '' },
        { name: 'n'.repeat(256) },
        { secret: '' },
        { secret: 's'.repeat(256) },
        { secret: 'whsec_not base64' },
        { url: `${url}?${hiddenValue}` },
        { headers: [{ key: 'A', value: hiddenValue }] },
        { headers: Array.from({ length: 21 }, (_, i) => ({ key: `A${i}`, value: '' })) },
        { retryPolicy: { maxRetries: 1 } },
        { status: 'paused' },
      ]) {
        await expect(create(body), JSON.stringify(body)).rejects.toEqual(
          expect.objectContaining({ status: 400 }),
        )
      }
    })

    it('is updated, and the audit log holds the values before and after', async () => {
      const { client, create, service, clock } = await start()
      const { id } = await create({ secret })
      clock.forward(5)
      const news = await newEntries(service)
      const params = { id }
      const after = await client.call(api.webhooks.update, {
        params,
        body: { name: 'other', status: 'failed', secret: 'another secret' },
      })
      expect(after).toMatchObject({
        name: 'other',
        status: 'failed',
        hasSecret: true,
        unreadable: [],
        url,
        updatedAt: clock(),
      })
      const [entry] = await news()
      expect(entry).toMatchObject({ action: 'webhook.update', resourceName: 'other' })
      expect(entry!.details).toMatchObject({
        before: { name: 'hook', status: 'active', secret: 'set' },
        after: { name: 'other', status: 'failed', secret: 'set' },
      })
      const unsigned = await client.call(api.webhooks.update, { params, body: { secret: null } })
      expect(unsigned.hasSecret).toBe(false)
      await expect(client.call(api.webhooks.update, { params, body: {} })).rejects.toEqual(
        errorWith(400, 'No updates provided'),
      )
    })

    it('is gone at once when it is deleted, with its deliveries', async () => {
      const { client, bakery } = await start()
      const { webhookId: id, deliveryId } = bakery
      expect(await client.call(api.webhooks.remove, { params: { id } })).toEqual({ success: true })
      const missing = errorWith(404, 'Webhook not found')
      const params = { id }
      await expect(client.call(api.webhooks.show, { params })).rejects.toEqual(missing)
      await expect(client.call(api.webhooks.remove, { params })).rejects.toEqual(missing)
      await expect(client.call(api.webhookDeliveries.list, { params })).rejects.toEqual(missing)
      await expect(client.call(api.webhookDeliveries.test, { params })).rejects.toEqual(missing)
      const one = client.call(api.webhookDeliveries.show, { params: { id, deliveryId } })
      await expect(one).rejects.toEqual(errorWith(404, 'Webhook not found'))
      expect((await client.call(api.webhookDeliveries.dead)).data).toEqual([])
    })

    it('has a retry policy within bounds, with defaults for omitted fields', async () => {
      const { client, create } = await start()
      const { id } = await create()
      const set = (body: Record<string, number>) =>
        client.call(api.webhooks.setRetryPolicy, { params: { id }, body })
      expect((await set({ maxRetries: 8 })).retryPolicy).toEqual({
        maxRetries: 8,
        initialDelayMs: 1000,
        backoffMultiplier: 2,
        maxDelayMs: 300_000,
      })
      expect((await set({ maxRetries: 0, maxDelayMs: 86_400_000 })).retryPolicy).toMatchObject({
        maxRetries: 0,
      })
      expect((await set({})).retryPolicy).toBeNull()
      for (const body of [
        { maxRetries: 16 },
        { maxRetries: -1 },
        { maxDelayMs: 86_400_001 },
        { backoffMultiplier: 0.5 },
        { initialDelayMs: 2000, maxDelayMs: 1000 },
      ]) {
        await expect(set(body as never), JSON.stringify(body)).rejects.toEqual(
          expect.objectContaining({ status: 400 }),
        )
      }
    })

    it('made without a secret gets one, which is shown once, and none where null is given', async () => {
      const { client, create, service } = await start()
      const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
      const made = await create()
      expect(made.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/)
      expect(made.hasSecret).toBe(true)
      const row = service.storage.read.selectFrom('webhooks').select('secret').where('id', '=', made.id)
      const { secret: sealed } = await row.executeTakeFirstOrThrow()
      expect(cipher.tryDecrypt(sealed!, `webhooks.secret.${made.id}`)).toBe(made.secret)
      expect(await client.call(api.webhooks.show, { params: { id: made.id } })).not.toHaveProperty('secret')
      expect(await create()).not.toMatchObject({ secret: made.secret })
      const bare = await create({ secret: null })
      expect([bare.hasSecret, 'secret' in bare]).toEqual([false, false])
    })

    it('gets a new secret, generated or given, which is shown once', async () => {
      const { client, create, clock } = await start()
      const { id } = await create({ secret: null })
      const rotate = (body?: { secret: string }) =>
        client.call(api.webhooks.rotateSecret, { params: { id }, ...(body && { body }) })
      const first = await rotate()
      expect(first.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/)
      expect(first).toMatchObject({ hasSecret: true, previousValidUntil: null })
      const second = await rotate({ secret })
      const until = new Date(Date.parse(clock()) + 86_400_000).toISOString()
      expect(second).toMatchObject({ secret, previousValidUntil: until })
      expect(await client.call(api.webhooks.show, { params: { id } })).not.toHaveProperty('secret')
    })
  })

  describe('a delivery', () => {
    it('that failed is sent again as a new one of the same event, and keeps its outcome', async () => {
      const { client, bakery, service } = await start()
      const { webhookId: id, deliveryId } = bakery
      const params = { id, deliveryId }
      const show = (one: string) =>
        client.call(api.webhookDeliveries.show, { params: { id, deliveryId: one } })
      const { delivery: first } = await client.call(api.webhookDeliveries.test, { params: { id } })
      await expect.poll(() => show(first.id), { timeout: 10_000 }).not.toMatchObject({ status: 'pending' })
      // A paused webhook still sends a requested delivery: from here on a worker that does nothing holds it.
      await service.storage.write(async (tx) => {
        const alive_until = '2999-01-01T00:00:00.000Z'
        await tx.insertInto('webhook_workers').values({ id: 'nobody', alive_until }).execute()
        await tx.updateTable('webhook_queues').set({ holder: 'nobody' }).execute()
      })
      const before = await show(deliveryId)
      expect(before).toMatchObject({ status: 'failed', attempt: 6, failureClass: 'refused', retryOf: null })
      const { message, delivery } = await client.call(api.webhookDeliveries.retry, { params })
      expect(message).toBe('Delivery retry queued')
      expect(delivery).toEqual({
        id: expect.any(String),
        webhookId: id,
        status: 'pending',
        event: 'patch.failed',
        attempt: 0,
      })
      expect(delivery.id).not.toBe(deliveryId)
      const { eventId, payload, sequence } = before
      expect(await show(delivery.id)).toMatchObject({
        eventId,
        payload,
        retryOf: deliveryId,
        sequence: sequence + 2,
        status: 'pending',
        attempt: 0,
        errorMessage: null,
        responseStatus: null,
        deliveredAt: null,
      })
      expect(await show(deliveryId)).toEqual(before)
      const { deliveryStats } = await client.call(api.webhooks.show, { params: { id } })
      expect(deliveryStats).toMatchObject({ total: 3, pending: 1 })
      const { data: dead } = await client.call(api.webhookDeliveries.dead, { query: {} })
      expect(dead.map((one) => one.id)).not.toContain(deliveryId)
      const untried = client.call(api.webhookDeliveries.retry, { params: { id, deliveryId: delivery.id } })
      await expect(untried).rejects.toEqual(errorWith(400, 'Only failed deliveries can be retried'))
      const unknown = client.call(api.webhookDeliveries.retry, { params: { id, deliveryId: newId() } })
      await expect(unknown).rejects.toEqual(errorWith(404, 'Delivery not found'))
    })

    it('is found only under its own webhook', async () => {
      const { client, create, bakery } = await start()
      const { id } = await create()
      const params = { id, deliveryId: bakery.deliveryId }
      const missing = errorWith(404, 'Delivery not found')
      await expect(client.call(api.webhookDeliveries.show, { params })).rejects.toEqual(missing)
      await expect(client.call(api.webhookDeliveries.retry, { params })).rejects.toEqual(missing)
    })

    it('is listed newest first, by status, by page and by cursor', async () => {
      const { client, bakery } = await start()
      const params = { id: bakery.webhookId }
      for (let i = 0; i < 4; i += 1) {
        const { delivery, message } = await client.call(api.webhookDeliveries.test, { params })
        expect([message, delivery]).toEqual([
          'Test delivery queued',
          {
            id: expect.any(String),
            webhookId: params.id,
            status: 'pending',
            event: 'webhook.test',
            attempt: 0,
          },
        ])
      }
      const list = (query = {}) => client.call(api.webhookDeliveries.list, { params, query })
      const all = await list()
      expect(all.data.map(({ sequence }) => sequence)).toEqual([5, 4, 3, 2, 1])
      expect(all.pagination).toMatchObject({ page: 1, limit: 50, total: 5, nextCursor: null })
      const first = await list({ limit: 2 })
      const { nextCursor: cursor } = first.pagination
      const second = await list({ limit: 2, cursor })
      expect(second.data.map(({ sequence }) => sequence)).toEqual([3, 2])
      expect((await list({ page: 3, limit: 2 })).data.map(({ sequence }) => sequence)).toEqual([1])
      expect((await list({ limit: 1000 })).pagination.limit).toBe(100)
      expect((await list({ status: 'failed' })).data.map(({ sequence }) => sequence)).toContain(1)
      expect(all.data[0]!.payload).toEqual({
        message: 'Test webhook from svc',
        timestamp: expect.any(String),
        webhookId: params.id,
      })
    })

    it('that failed for good is a dead letter, visible within each scope', async () => {
      const { client, system, service, world, bakery, garage } = await start()
      const ids = async (who: typeof client, query = {}) =>
        (await who.call(api.webhookDeliveries.dead, { query })).data.map(({ id }) => id)
      expect(await ids(client)).toEqual([bakery.deliveryId])
      const acme = service.client(world.tokens.acme)
      expect((await ids(acme)).sort()).toEqual([bakery.deliveryId, garage.deliveryId].sort())
      expect(await ids(system, { orgId: garage.id })).toEqual([garage.deliveryId])
      expect(await ids(client, { until: '2020-01-01T00:00:00Z' })).toEqual([])
    })
  })
})
