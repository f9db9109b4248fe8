import { hash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { NewApiKey } from '../../src/credentials/api-keys/contract.ts'
import { revokeApiKeys } from '../../src/credentials/api-keys/store.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { join } from '../identity/role-helpers.ts'
import { userIdOf } from '../laws/fixture.ts'
import { addOrgUser, addPartnerUser, addRole, buildWorld, systemToken } from '../world.ts'

const failing = (status: number, code: string, message?: string) =>
  expect.objectContaining({ status, code, ...(message !== undefined && { message }) })

const reading = { name: 'reader', scopes: ['devices:read'] }

inTurn((open) => {
  const begin = async () => {
    const clock = testClock(new Date().toISOString())
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const client = service.client(world.tokens.bakery)
    const mint = (body: Partial<NewApiKey> & { name: string }, by = client) =>
      by.call(api.apiKeys.create, { body })
    const using = (key: string) => service.client(undefined, { 'x-api-key': key })
    const look = (key: string) => using(key).call(api.devices.list)
    const change = (id: string, set: Record<string, unknown>) =>
      service.storage.write((tx) => tx.updateTable('api_keys').set(set).where('id', '=', id).execute())
    return { service, clock, ...world, client, mint, using, look, change }
  }

  describe('an API key', () => {
    it('is svc_ and 32 characters, shown once, and stored only as a SHA-256 hash', async () => {
      const { service, client, orgs, mint } = await begin()
      const { key, warning, ...minted } = await mint(reading)
      expect(key).toMatch(/^svc_[A-Za-z0-9_-]{32}$/)
      expect(warning).toContain('not be shown again')
      const { id } = minted
      expect(minted).toEqual({
        id,
        orgId: orgs.bakery.id,
        name: 'reader',
        keyPrefix: key.slice(0, 12),
        scopes: ['devices:read'],
        expiresAt: null,
        rateLimit: 1000,
        status: 'active',
        createdBy: await userIdOf(service, 'bakery-admin'),
        createdAt: expect.any(String),
      })
      const shown = await client.call(api.apiKeys.show, { params: { id } })
      expect(shown).toEqual({ ...minted, lastUsedAt: null, usageCount: 0 })
      const { data } = await client.call(api.apiKeys.list)
      expect(data.find((one) => one.id === id)).toEqual(shown)
      const stored = await service.storage.read
        .selectFrom('api_keys')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      expect(stored.key_hash).toBe(hash('sha256', key, 'hex'))
      expect(JSON.stringify(stored)).not.toContain(key)
    })

    it('reads what its scopes name, in its own organization only', async () => {
      const { mint, using, look, orgs } = await begin()
      const { key } = await mint(reading)
      const { data } = await look(key)
      expect(data.map(({ hostname }) => hostname)).toEqual(['bakery-pc'])
      const show = (id: string) => using(key).call(api.devices.show, { params: { id } })
      expect((await show(orgs.bakery.deviceId)).hostname).toBe('bakery-pc')
      await expect(show(orgs.garage.deviceId)).rejects.toEqual(failing(404, 'not_found'))
      const foreign = using(key).call(api.devices.list, { query: { orgId: orgs.garage.id } })
      await expect(foreign).rejects.toEqual(failing(403, 'org_access_denied'))
    })

    it('without the scope is refused, and the refusal is audited for the key', async () => {
      const { mint, look, client, orgs } = await begin()
      const { id, key } = await mint({ name: 'nothing' })
      const message = 'API key does not have required permissions'
      await expect(look(key)).rejects.toEqual(failing(403, 'api_key_scope', message))
      const logs = await client.call(api.auditLogs.list, { query: { action: 'access.denied' } })
      expect(logs.data[0]).toMatchObject({ result: 'denied', user: { id } })
      const other = await mint({ name: 'other', scopes: ['alerts:read'] })
      await expect(look(other.key)).rejects.toEqual(failing(403, 'api_key_scope', message))
      expect(orgs.bakery.id).toBe(other.orgId)
    })

    it('with * has all permissions, and needs a creator who has them', async () => {
      const { service, mint, look, tokens, orgs } = await begin()
      await expect(mint({ name: 'all', scopes: ['*'] })).rejects.toEqual(
        failing(403, 'forbidden', 'You cannot give the scope "*" to an API key: you do not hold it'),
      )
      const admin = service.client(tokens.acme)
      const { key } = await mint({ name: 'all', scopes: ['*'], orgId: orgs.bakery.id }, admin)
      expect((await look(key)).data).toHaveLength(1)
    })

    it('is refused with the documented errors in the documented order', async () => {
      const { service, mint, look, using, clock, client } = await begin()
      const none = service.client().call(api.devices.list)
      await expect(none).rejects.toEqual(failing(401, 'unauthenticated', 'Missing X-API-Key header'))
      await expect(look('key_of_another_kind')).rejects.toEqual(
        failing(401, 'invalid_api_key', 'Invalid API key format'),
      )
      await expect(look(`svc_${'x'.repeat(32)}`)).rejects.toEqual(
        failing(401, 'invalid_api_key', 'Invalid API key'),
      )
      const revoked = await mint({ name: 'revoked' })
      await client.call(api.apiKeys.revoke, { params: { id: revoked.id } })
      await expect(look(revoked.key)).rejects.toEqual(failing(401, 'api_key_revoked', 'API key is revoked'))
      const expiresAt = new Date(Date.parse(clock()) + 60_000).toISOString()
      const expiring = await mint({ ...reading, expiresAt })
      await look(expiring.key)
      clock.forward(60)
      const shown = () => client.call(api.apiKeys.show, { params: { id: expiring.id } })
      expect((await shown()).status).toBe('active')
      for (const _ of [1, 2]) {
        await expect(look(expiring.key)).rejects.toEqual(
          failing(401, 'api_key_expired', 'API key is expired'),
        )
        expect((await shown()).status).toBe('expired')
      }
      await expect(using(revoked.key).call(api.apiKeys.list)).rejects.toEqual(failing(401, 'unauthenticated'))
    })

    it('takes precedence over a bearer token, and is ignored where only users are accepted', async () => {
      const { service, mint, look, tokens } = await begin()
      const { key } = await mint(reading)
      const both = service.client(tokens.system, { 'x-api-key': key })
      expect((await both.call(api.devices.list)).data.map(({ hostname }) => hostname)).toEqual(['bakery-pc'])
      const wrong = service.client(tokens.system, { 'x-api-key': 'svc_wrong' })
      await expect(wrong.call(api.devices.list)).rejects.toEqual(failing(401, 'invalid_api_key'))
      expect((await wrong.call(api.apiKeys.list)).data.length).toBeGreaterThan(0)
      await look(key)
    })

    it('is created with known scopes, a future expiry and a limit within bounds', async () => {
      const { mint, clock } = await begin()
      await expect(mint({ name: 'x', scopes: ['devices:paint'] })).rejects.toMatchObject({
        status: 400,
        details: [
          { path: 'body.scopes.0', message: expect.stringContaining('"devices:paint" is not a scope') },
        ],
      })
      await expect(mint({ name: 'x', expiresAt: clock() })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.expiresAt', message: 'must be in the future' }],
      })
      for (const rateLimit of [0, 100_001, 1.5]) {
        await expect(mint({ name: 'x', rateLimit })).rejects.toMatchObject({ status: 400 })
      }
      await expect(mint({ name: '' })).rejects.toMatchObject({ status: 400 })
      await expect(mint({ name: 'x'.repeat(256) })).rejects.toMatchObject({ status: 400 })
    })

    it('outside organization scope is created for a named organization within reach', async () => {
      const { service, mint, tokens, orgs } = await begin()
      const acme = service.client(tokens.acme)
      await expect(mint(reading, acme)).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.orgId' }],
      })
      const foreign = mint({ ...reading, orgId: orgs.harbor.id }, acme)
      await expect(foreign).rejects.toEqual(failing(403, 'org_access_denied'))
      expect((await mint({ ...reading, orgId: orgs.garage.id }, acme)).orgId).toBe(orgs.garage.id)
    })

    it('changes name, scopes and limit without rotation, and the audit log records which', async () => {
      const { client, mint, look } = await begin()
      const { id, key, warning: _, ...minted } = await mint({ name: 'before' })
      const body = { name: 'after', scopes: ['devices:read', 'devices:read'], rateLimit: 10 }
      const changed = await client.call(api.apiKeys.update, { params: { id }, body })
      expect(changed).toEqual({
        ...minted,
        id,
        name: 'after',
        scopes: ['devices:read'],
        rateLimit: 10,
        lastUsedAt: null,
        usageCount: 0,
      })
      await look(key)
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'api_key.update' } })
      expect(data[0]).toMatchObject({
        resource: { type: 'api_key', id, name: 'after' },
        details: {
          before: { name: 'before', scopes: [], rateLimit: 1000 },
          after: { name: 'after', scopes: ['devices:read'], rateLimit: 10 },
        },
      })
      const update = (change: object) =>
        client.call(api.apiKeys.update, { params: { id }, body: change as never })
      await expect(update({})).rejects.toMatchObject({ status: 400 })
      await expect(update({ rateLimitt: 1 })).rejects.toMatchObject({ status: 400 })
      await expect(update({ scopes: ['*'] })).rejects.toEqual(failing(403, 'forbidden'))
    })

    it('is invalid at once when revoked, permanently', async () => {
      const { client, mint, look } = await begin()
      const { id, key } = await mint(reading)
      await look(key)
      expect(await client.call(api.apiKeys.revoke, { params: { id } })).toMatchObject({
        success: true,
        message: 'API key revoked successfully',
        apiKey: { id, status: 'revoked' },
      })
      await expect(look(key)).rejects.toEqual(failing(401, 'api_key_revoked'))
      const again = client.call(api.apiKeys.revoke, { params: { id } })
      await expect(again).rejects.toMatchObject({ status: 400, message: 'API key is already revoked' })
      const message = 'Cannot update revoked API key'
      const update = client.call(api.apiKeys.update, { params: { id }, body: { name: 'x' } })
      await expect(update).rejects.toEqual(failing(400, 'invalid_request', message))
      const rotate = client.call(api.apiKeys.rotate, { params: { id } })
      await expect(rotate).rejects.toEqual(failing(400, 'invalid_request', message))
      const { data } = await client.call(api.apiKeys.list, { query: { status: 'revoked' } })
      expect(data.map((one) => one.id)).toEqual([id])
    })

    it('that has expired cannot be updated or rotated, even if still stored as active', async () => {
      const { client, mint, clock } = await begin()
      const { id } = await mint({ name: 'x', expiresAt: new Date(Date.parse(clock()) + 1000).toISOString() })
      clock.forward(1)
      const message = 'Cannot update revoked API key'
      const update = client.call(api.apiKeys.update, { params: { id }, body: { name: 'y' } })
      await expect(update).rejects.toEqual(failing(400, 'invalid_request', message))
      const rotate = client.call(api.apiKeys.rotate, { params: { id } })
      await expect(rotate).rejects.toEqual(failing(400, 'invalid_request', message))
    })

    it('is replaced at once by rotation, and keeps everything except its counters', async () => {
      const { client, mint, look, change } = await begin()
      const { key: old, warning: _, keyPrefix, ...kept } = await mint({ ...reading, rateLimit: 50 })
      const { id } = kept
      await look(old)
      await change(id, { usage_count: 7, last_used_at: '2026-01-01T00:00:00.000Z' })
      const { key, warning, ...fresh } = await client.call(api.apiKeys.rotate, { params: { id } })
      expect(fresh).toEqual({ ...kept, keyPrefix: key.slice(0, 12) })
      expect(keyPrefix).not.toBe(fresh.keyPrefix)
      expect(warning).toContain('invalidated')
      await expect(look(old)).rejects.toEqual(failing(401, 'invalid_api_key'))
      await look(key)
      const shown = await client.call(api.apiKeys.show, { params: { id } })
      expect(shown).toMatchObject({ usageCount: 0, lastUsedAt: null })
    })

    it('may overlap with the previous key, but never beyond its own expiry', async () => {
      const { client, mint, look, clock } = await begin()
      const expiresAt = new Date(Date.parse(clock()) + 100_000).toISOString()
      const first = await mint({ ...reading, expiresAt })
      const rotate = (overlapSeconds: number) =>
        client.call(api.apiKeys.rotate, { params: { id: first.id }, body: { overlapSeconds } })
      const second = await rotate(50)
      await look(first.key)
      clock.forward(49)
      await look(first.key)
      clock.forward(1)
      await expect(look(first.key)).rejects.toEqual(failing(401, 'invalid_api_key'))
      const third = await rotate(3600)
      expect(third.warning).toContain(expiresAt)
      await look(second.key)
      clock.forward(50)
      await expect(look(second.key)).rejects.toEqual(failing(401, 'invalid_api_key'))
      await expect(look(third.key)).rejects.toEqual(failing(401, 'api_key_expired'))
    })

    it('gets another expiry at its rotation, keeps its own with a warning, or loses it', async () => {
      const { client, mint, look, clock } = await begin()
      const later = (seconds: number) => new Date(Date.parse(clock()) + seconds * 1000).toISOString()
      const [soon, late] = [later(100), later(1000)]
      const first = await mint({ ...reading, expiresAt: soon })
      const rotate = (body: { expiresAt?: string | null; overlapSeconds?: number }) =>
        client.call(api.apiKeys.rotate, { params: { id: first.id }, body })
      await expect(rotate({ expiresAt: clock() })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.expiresAt', message: 'must be in the future' }],
      })
      const kept = await rotate({})
      expect(kept.warning).toContain(`It expires at ${soon}, as the old one did`)
      const renewed = await rotate({ expiresAt: late, overlapSeconds: 500 })
      expect(renewed).toMatchObject({ expiresAt: late, warning: expect.not.stringContaining('It expires') })
      // The old key does not outlive its own expiry.
      clock.forward(100)
      await expect(look(kept.key)).rejects.toEqual(failing(401, 'invalid_api_key'))
      await look(renewed.key)
      const lasting = await rotate({ expiresAt: null })
      const { entries } = await client.call(api.auditLogs.flat, { query: { action: 'api_key.rotate' } })
      expect(entries.map(({ changes }) => changes)).toContainEqual(
        expect.objectContaining({
          before: expect.objectContaining({ expiresAt: soon }),
          after: expect.objectContaining({ expiresAt: late }),
        }),
      )
      clock.forward(5000)
      await look(lasting.key)
    })

    it('is listed while it is in use and expires before a time', async () => {
      const { client, mint, clock } = await begin()
      const later = (seconds: number) => new Date(Date.parse(clock()) + seconds * 1000).toISOString()
      for (const [name, seconds] of [
        ['past', 10],
        ['soon', 100],
        ['late', 1000],
      ] as const)
        await mint({ name, expiresAt: later(seconds) })
      await mint({ name: 'lasting' })
      const { id } = await mint({ name: 'revoked', expiresAt: later(100) })
      await client.call(api.apiKeys.revoke, { params: { id } })
      clock.forward(20)
      const named = async (expiresBefore: string) =>
        (await client.call(api.apiKeys.list, { query: { expiresBefore } })).data.map(({ name }) => name)
      expect(await named(later(200))).toEqual(['soon'])
      expect(await named(later(2000))).toEqual(['late', 'soon'])
    })

    it('cannot be rotated by someone who holds less', async () => {
      const { service, tokens, orgs, mint, client } = await begin()
      const all = await mint(
        { name: 'all', scopes: ['*'], orgId: orgs.bakery.id },
        service.client(tokens.system),
      )
      const rotate = client.call(api.apiKeys.rotate, { params: { id: all.id } })
      await expect(rotate).rejects.toEqual(failing(403, 'forbidden'))
      const token = await addOrgUser(service, 'narrow', orgs.bakery.id, { siteIds: [] })
      const wide = await mint(reading)
      const narrow = service.client(token).call(api.apiKeys.rotate, { params: { id: wide.id } })
      await expect(narrow).rejects.toEqual(failing(403, 'site_access_denied'))
    })

    it('cannot be obtained or widened by someone who holds less; they may narrow or revoke it', async () => {
      const { service, orgs, mint, look, client } = await begin()
      const role = await addRole(service, orgs.bakery.id, 'Keeper', [
        'organizations:read',
        'organizations:write',
        'devices:read',
      ])
      const { token } = await join(service, 'keeper', orgs.bakery.id, role)
      const lesser = service.client(token)
      const strong = await mint({ name: 'strong', scopes: ['devices:read', 'devices:write'] })
      const params = { id: strong.id }
      const refused = failing(403, 'forbidden')
      const change = (scopes: string[]) => lesser.call(api.apiKeys.update, { params, body: { scopes } })
      await expect(lesser.call(api.apiKeys.rotate, { params })).rejects.toEqual(refused)
      for (const scopes of [['*'], ['audit:read'], ['devices:read', 'devices:write', 'organizations:read']]) {
        await expect(change(scopes)).rejects.toEqual(refused)
      }
      const { data } = await client.call(api.apiKeys.list)
      const kept = data.find(({ id }) => id === strong.id)
      expect(kept).toMatchObject({ scopes: ['devices:read', 'devices:write'], keyPrefix: strong.keyPrefix })
      await look(strong.key)
      expect(await change(['devices:read'])).toMatchObject({ scopes: ['devices:read'] })
      // Now the key holds no more than they do.
      const { key } = await lesser.call(api.apiKeys.rotate, { params })
      await look(key)
      const other = await mint({ name: 'other', scopes: ['devices:read', 'devices:write'] })
      await lesser.call(api.apiKeys.revoke, { params: { id: other.id } })
      await expect(look(other.key)).rejects.toEqual(failing(401, 'api_key_revoked'))
    })

    it('with access to all sites cannot be widened by a member of some sites', async () => {
      const { service, orgs, mint, look } = await begin()
      const { id: orgId, siteId } = orgs.bakery
      const narrow = service.client(await addOrgUser(service, 'of-site', orgId, { siteIds: [siteId] }))
      const wide = await mint({ name: 'wide', scopes: ['sites:read'] })
      const change = (id: string, scopes: string[]) =>
        narrow.call(api.apiKeys.update, { params: { id }, body: { scopes } })
      await expect(change(wide.id, ['sites:read', 'devices:read'])).rejects.toEqual(
        failing(403, 'site_access_denied'),
      )
      await expect(look(wide.key)).rejects.toEqual(failing(403, 'api_key_scope'))
      expect(await change(wide.id, ['sites:read'])).toMatchObject({ scopes: ['sites:read'] })
      expect(await change(wide.id, [])).toMatchObject({ scopes: [] })
      const own = await mint({ name: 'own', scopes: ['sites:read'] }, narrow)
      expect(await change(own.id, ['devices:read'])).toMatchObject({ scopes: ['devices:read'] })
    })

    it('sees no more sites than its creator', async () => {
      const { service, orgs, mint, look, client } = await begin()
      const annex = await client.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      const token = await addOrgUser(service, 'narrow', orgs.bakery.id, { siteIds: [annex.id] })
      const { key } = await mint(reading, service.client(token))
      expect((await look(key)).data).toEqual([])
    })

    it('has the current permissions of its creator, none after their removal', async () => {
      const { service, orgs, partners, mint, look } = await begin()
      const admin = await addPartnerUser(service, 'leaver', partners.acme, 'all')
      const { key } = await mint({ ...reading, orgId: orgs.bakery.id }, service.client(admin))
      const id = await userIdOf(service, 'leaver')
      await look(key)
      const { storage } = service
      const refused = failing(403, 'api_key_scope')
      const set = (org_access: string) =>
        storage.write((tx) =>
          tx.updateTable('partner_memberships').set({ org_access }).where('user_id', '=', id).execute(),
        )
      await set('none')
      await expect(look(key)).rejects.toEqual(refused)
      await set('all')
      await look(key)
      const setStatus = (status: string) =>
        storage.write((tx) => tx.updateTable('users').set({ status }).where('id', '=', id).execute())
      await setStatus('disabled')
      await expect(look(key)).rejects.toEqual(refused)
      await setStatus('active')
      await look(key)
      await storage.write((tx) => tx.deleteFrom('partner_memberships').where('user_id', '=', id).execute())
      await expect(look(key)).rejects.toEqual(refused)
    })

    it.each([
      ['organizations', 'suspended'],
      ['organizations', 'churned'],
      ['partners', 'suspended'],
      ['partners', 'churned'],
      ['partners', 'pending'],
    ] as const)('is invalid when %s are %s', async (table, status) => {
      const { service, orgs, partners, look, mint } = await begin()
      const system = service.client(await systemToken(service))
      const { key } = await mint({ ...reading, orgId: orgs.bakery.id }, system)
      await look(key)
      const id = table === 'organizations' ? orgs.bakery.id : partners.acme
      await service.storage.write((tx) =>
        tx.updateTable(table).set({ status }).where('id', '=', id).execute(),
      )
      await expect(look(key)).rejects.toEqual(failing(401, 'api_key_revoked'))
    })

    it('is invalid when its organization is deleted', async () => {
      const { service, orgs, look, mint, clock } = await begin()
      const { key } = await mint(reading)
      await service.storage.write((tx) =>
        tx
          .updateTable('organizations')
          .set({ deleted_at: clock() })
          .where('id', '=', orgs.bakery.id)
          .execute(),
      )
      await expect(look(key)).rejects.toEqual(failing(401, 'api_key_revoked'))
    })

    it('can be revoked together with all others of a tenant', async () => {
      const { service, partners, look, mint, orgs, tokens } = await begin()
      const ours = await mint(reading)
      const theirs = await mint({ ...reading, orgId: orgs.harbor.id }, service.client(tokens.globex))
      const scope = { kind: 'partner', partnerId: partners.acme, orgs: 'all' } as const
      await service.storage.write((tx) => revokeApiKeys(tx, scope))
      await expect(look(ours.key)).rejects.toEqual(failing(401, 'api_key_revoked'))
      await look(theirs.key)
    })
  })

  describe('the hourly limit of an API key', () => {
    it('admits that many requests in an hour, reports its state in headers, and slides', async () => {
      const { mint, change, service, clock } = await begin()
      const { id, key } = await mint({ ...reading, rateLimit: 20 })
      const get = async () => {
        const reply = await fetch(`${service.url}/api/v1/devices`, { headers: { 'x-api-key': key } })
        await reply.text()
        const header = (name: string) => Number(reply.headers.get(name))
        return {
          status: reply.status,
          limit: header('x-ratelimit-limit'),
          remaining: header('x-ratelimit-remaining'),
          reset: header('x-ratelimit-reset'),
          retryAfter: header('retry-after'),
        }
      }
      const seconds = () => Date.parse(clock()) / 1000
      for (let n = 1; n <= 10; n++) {
        expect(await get()).toMatchObject({ status: 200, limit: 20, remaining: 20 - n })
      }
      const first = seconds()
      clock.forward(1800)
      for (let n = 11; n <= 20; n++) expect(await get()).toMatchObject({ status: 200, remaining: 20 - n })
      const refused = await get()
      expect(refused).toMatchObject({ status: 429, limit: 20, remaining: 0 })
      expect(refused.retryAfter).toBe(Math.ceil(refused.reset - seconds()))
      expect(refused.reset - first).toBeGreaterThan(3599)
      expect(refused.reset - first).toBeLessThan(3600 * 1.006)
      clock.forward(refused.retryAfter - 1)
      expect((await get()).status).toBe(429)
      clock.forward(1)
      // Only the ten requests of the first bucket have expired.
      for (let n = 1; n <= 10; n++) expect(await get()).toMatchObject({ status: 200 })
      expect((await get()).status).toBe(429)
      await change(id, { rate_limit: 25 })
      expect((await get()).status).toBe(200)
    })

    it('holds under concurrency, and counts the admitted requests', async () => {
      const { mint, look, service, client } = await begin()
      const { id, key } = await mint({ ...reading, rateLimit: 300 })
      const results = await Promise.allSettled(Array.from({ length: 500 }, () => look(key)))
      const passed = results.filter(({ status }) => status === 'fulfilled')
      expect(passed).toHaveLength(300)
      for (const one of results) {
        if (one.status === 'rejected') {
          expect(one.reason).toEqual(failing(429, 'rate_limited', 'Rate limit exceeded'))
        }
      }
      await expect
        .poll(async () => (await client.call(api.apiKeys.show, { params: { id } })).usageCount, {
          timeout: 5000,
        })
        .toBe(300)
      await service.close()
    })

    it('is checked before the scopes, and not for an invalid key', async () => {
      const { mint, look } = await begin()
      const { key } = await mint({ name: 'poor', rateLimit: 1 })
      await expect(look(key)).rejects.toEqual(failing(403, 'api_key_scope'))
      await expect(look(key)).rejects.toEqual(failing(429, 'rate_limited'))
    })
  })
})
